"""Where the files of a run are now: a project folder may be moved or copied with its state file in it."""

from __future__ import annotations

from pathlib import Path


def present_place(out: str, home: str, folder: Path) -> str:
    """The output folder as it can be found.

    Args:
        out: folder or URI as it was given, local ones absolute.
        home: the state file's folder then.
        folder: the state file's folder now.

    Returns:
        `out`, or the folder at the same place beside the moved state file, where that is there or `out` is not.
    """
    if "://" in out or not home or Path(home) == folder:
        return out
    project = Path(home).parent
    if not Path(out).is_relative_to(project):
        return out
    moved = folder.parent / Path(out).relative_to(project)
    return str(moved) if moved.exists() or not Path(out).exists() else out
