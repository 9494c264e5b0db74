"""Records that cannot be sent, and how they are named to people: by file and line, those alike together."""

from __future__ import annotations

from dataclasses import dataclass, field

from batchctl.core.errors import InputError

FIELDS_NAMED = 15
LINES_NAMED = 3
SHOWN = 20  # problems that are told to people


@dataclass(frozen=True, slots=True)
class Problem:
    """One record that cannot be sent, by file and line; `seq` is its place in the run.

    Args:
        fields: the names that are there, where one is missing.
    """

    seq: int
    source: int
    path: str
    line: int
    reason: str
    id: str | None = None
    type: str = "bad_input"
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        item = "" if self.id is None else f"item {self.id!r}: "
        return f"{self.path} line {self.line}: {item}{self.reason}{self.fields_there}"

    @property
    def fields_there(self) -> str:
        """What a record has instead of what it lacks."""
        if not self.fields:
            return ""
        more = f" and {len(self.fields) - FIELDS_NAMED} more" if len(self.fields) > FIELDS_NAMED else ""
        odd = next((name for name in self.fields if not name.isidentifier() and '"' not in name), None)
        how = f'; in a prompt {{{{ item["{odd[:60]}"] }}}}' if odd else ""
        return f"; its fields: {', '.join(name[:60] for name in self.fields[:FIELDS_NAMED])}{more}{how}"


@dataclass(slots=True)
class Problems:
    """Records of one file that cannot be sent for one and the same reason."""

    first: Problem
    count: int = 0
    lines: list[int] = field(default_factory=list)  # the first ones

    def add(self, problem: Problem) -> None:
        """Count one more."""
        self.count += 1
        if len(self.lines) < LINES_NAMED:
            self.lines.append(problem.line)

    def __str__(self) -> str:
        if self.count == 1:
            return str(self.first)
        more = self.count - len(self.lines)
        lines = ", ".join(map(str, self.lines)) + (f" and {more:,} more" if more else "")
        first = self.first
        return f"{self.count:,} records, {first.path} lines {lines}: {first.reason}{first.fields_there}"


def bad_input(problems: list[Problems], count: str) -> InputError:
    """The refusal that names the first bad records by file and line, those alike together."""
    lines = "\n".join(f"  {problem}" for problem in problems)
    return InputError(
        f"{count} bad record{'' if count == '1' else 's'} in the input; nothing was sent:\n{lines}",
        hint="correct them, or give --skip-bad to send the rest and find these in errors.jsonl",
    )
