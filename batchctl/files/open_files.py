"""How many files and connections this process may have open at once."""

from __future__ import annotations

import resource


def most_open() -> int:
    """The limit on open files, raised as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            return soft
    return hard
