"""`python -m batchctl`."""

from batchctl.cli.main import main

main()
