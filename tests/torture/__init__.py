"""A campaign of random kills and faults over whole runs: `make torture N=1000 SEED=1`, or `python -m tests.torture`."""
