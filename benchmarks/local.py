"""The local part of `submit` alone: read, check, render, serialise, pack, spool and store, without a call.

Run as `python -m benchmarks.local INPUT PROMPT FOLDER`; the folder is emptied first.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

from batchctl.runs.context import Context
from batchctl.runs.planning import PlanRequest, make_run
from batchctl.runs.settings import Settings
from batchctl.state.store import Store
from benchmarks.measuring import MODEL


async def make(source: str, prompt: str, folder: Path) -> None:
    """Make one run, in a loop as the verbs do."""
    settings = Settings(provider="anthropic", endpoint="/v1/messages", model=MODEL, prompt=prompt, max_tokens=200)
    with Store.open(folder / "state.db") as store:
        request = PlanRequest("bench", (source,), settings, str(folder / "out"))
        make_run(Context(folder / "state.db", emit=lambda _: None), request, lambda: store)


if __name__ == "__main__":
    target = Path(sys.argv[3])
    shutil.rmtree(target, ignore_errors=True)
    asyncio.run(make(sys.argv[1], Path(sys.argv[2]).read_text(encoding="utf-8"), target))
