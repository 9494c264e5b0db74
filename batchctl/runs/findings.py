"""What `doctor` finds: one thing that is wrong, and what mends it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Finding:
    """One thing that is wrong.

    Args:
        run: the run's name, None where it is about the state file or a folder.
        text: what is wrong, with file, line or id.
        way_out: what `--repair` does, or what a person must do.
        mendable: `--repair` can do it.
        mended: it has done it.
    """

    run: str | None
    text: str
    way_out: str
    mendable: bool = False
    mended: bool = False

    def __str__(self) -> str:
        where = f"run {self.run}: " if self.run else ""
        action = "mended" if self.mended else "--repair" if self.mendable else "by hand"
        return f"{where}{self.text} [{action}: {self.way_out}]"
