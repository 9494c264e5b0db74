"""Reads CSV and TSV: every value a string, quoted cells whole, each record known by the physical line it starts on."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from io import BufferedReader

from batchctl.core.errors import InputError
from batchctl.files.records import BadRecord, Record, bad_utf8, skip_line, too_long


class _Lines:
    """Physical lines as text; what is wrong with one is noted in `problem`, so that the parser keeps its place."""

    def __init__(self, stream: BufferedReader, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self.number = 0
        self.problem: BadRecord | None = None

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._stream.readline(self._limit + 1)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) > self._limit:
            if not line.endswith(b"\n"):
                skip_line(self._stream)
            self.problem = self.problem or too_long(self.number, self._limit)
            return "\n"
        if b"\0" in line:
            self.problem = self.problem or BadRecord(self.number, "a zero byte in the text")
        try:
            return line.decode()
        except UnicodeDecodeError:
            self.problem = self.problem or bad_utf8(self.number, line)
            return line.decode("utf-8", "replace")

    def take_problem(self) -> BadRecord | None:
        """What was wrong since the last call."""
        problem, self.problem = self.problem, None
        return problem


class CsvReader:
    """The records of a CSV or TSV stream; the first line that is not blank names the fields.

    Raises:
        InputError: (when iterated) the header cannot be used.
    """

    def __init__(self, stream: BufferedReader, path: str, delimiter: str, max_line_bytes: int) -> None:
        self._path = path
        self._lines = _Lines(stream, max_line_bytes)
        csv.field_size_limit(max_line_bytes)
        self._rows = csv.reader(self._lines, delimiter=delimiter, strict=True)

    def __iter__(self) -> Iterator[Record | BadRecord]:
        header: list[str] | None = None
        while True:
            start = self._lines.number + 1
            try:
                row = next(self._rows)
            except StopIteration:
                return
            except csv.Error as error:
                problem = self._lines.take_problem()
                bad = BadRecord(start, problem.reason if problem else _explained(error))
                if header is None:
                    raise self._bad_header(bad) from None
                yield bad
                continue
            problem = self._lines.take_problem()
            if problem is not None:
                problem.line = start
                if header is None:
                    raise self._bad_header(problem)
                yield problem
            elif not row or (len(row) == 1 and not row[0].strip() and header != row and len(header or "ab") > 1):
                continue  # a blank line
            elif header is None:
                header = self._checked(self._split_again(row), start)
            elif len(row) != len(header):
                yield BadRecord(start, _wrong_width(len(row), len(header)))
            else:
                yield Record(start, None, dict(zip(header, row, strict=True)))

    def _split_again(self, header: list[str]) -> list[str]:
        """The header of a file with semicolons, as spreadsheets write it where the comma is the decimal sign."""
        if len(header) > 1 or ";" not in header[0]:
            return header
        self._rows = csv.reader(self._lines, delimiter=";", strict=True)
        return next(csv.reader(header, delimiter=";"))

    def _checked(self, header: list[str], line: int) -> list[str]:
        twice = [name for name, count in Counter(header).items() if count > 1]
        if twice:
            names = ", ".join(repr(name) for name in twice)
            raise InputError(
                f"{self._path} line {line}: the header names {names} more than once",
                hint="give each column its own name",
            )
        return header

    def _bad_header(self, problem: BadRecord) -> InputError:
        return InputError(f"{self._path} line {problem.line}: {problem.reason}", hint="the first line names the fields")


def _wrong_width(cells: int, columns: int) -> str:
    return f"{cells} cell{'' if cells == 1 else 's'}, but the header has {columns}: is a quote or delimiter missing?"


def _explained(error: csv.Error) -> str:
    text = str(error)
    if "unexpected end of data" in text:
        return "a quote is opened and never closed"
    if "expected after" in text:
        return f"{text}: are the cells separated by something else?"
    if "field larger than" in text:
        return f"{text}: is a quote opened and never closed?"
    if "new-line character" in text:
        return "a carriage return outside quotes: lines must end with a newline"
    return text
