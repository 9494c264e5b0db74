"""`python -m tests.torture [-n N] [--seed S]`: exit 0 when every promise was kept."""

from __future__ import annotations

import argparse
import sys

from tests.torture.campaign import Totals, play_seed, report, run_campaign
from tests.torture.processes import preload


def main() -> int:
    """Run a campaign, or play one seed again."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("-n", type=int, default=1000, help="schedules (default 1000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first (default 1)")
    parser.add_argument("--workers", type=int, default=2, help="schedules side by side (default 2)")
    parser.add_argument("--again", action="store_true", help="play only the one schedule of --seed, and show all")
    options = parser.parse_args()
    if options.again:
        return _again(options.seed)
    totals = run_campaign(range(options.seed, options.seed + options.n), workers=options.workers)
    return _end(totals)


def _again(seed: int) -> int:
    preload()
    played = play_seed(seed)
    say(played.schedule.describe())
    say(played.log)
    for problem in played.problems:
        say(f"VIOLATION {problem.kind}: {problem.text}")
    return int(bool(played.problems))


def _end(totals: Totals) -> int:
    say(str(totals))
    if not totals.bad:
        return 0
    say("")
    for line in report(totals.bad[0]):
        say(line)
    return 1


def say(text: str) -> None:
    """One line of the report."""
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
