"""Reads Parquet a batch of rows at a time; values become what JSON can say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from batchctl.core.errors import InputError
from batchctl.files.records import BadRecord, Record

BATCH_ROWS = 10_000


def read_parquet(path: str) -> Iterator[Record | BadRecord]:
    """The rows of a Parquet file; `line` is the row number.

    Dates and times become ISO strings (digits below the microsecond are dropped), decimals strings, NaN null.

    Raises:
        InputError: no Parquet file, or pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise InputError(
            f"{path}: reading Parquet needs an extra package", hint="install it with `pip install 'batchctl[parquet]'`"
        ) from None
    if path == "-":
        raise InputError("Parquet cannot be read from standard input", hint="name the file")
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                for row in _in_microseconds(batch, pa).to_pylist():
                    number += 1
                    yield _record(number, row)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path}: not readable as Parquet after row {number}: {error}",
            hint="check that it is a whole, uncompressed Parquet file",
        ) from None


def _in_microseconds(batch: Any, pa: Any) -> Any:
    """Python's own times have no nanoseconds."""
    columns = [
        column.cast(pa.timestamp("us", column.type.tz), safe=False)
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns"
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _record(number: int, row: dict[str, Any]) -> Record | BadRecord:
    try:
        return Record(number, None, {name: _plain(value, name) for name, value in row.items()})
    except ValueError as error:
        return BadRecord(number, str(error))


def _plain(value: Any, column: str) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return _number(value, column)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {name: _plain(entry, column) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, column) for entry in value]
    raise ValueError(f"column {column!r} holds {type(value).__name__}, which JSON has no word for")


def _number(value: float, column: str) -> float | None:
    if math.isnan(value):
        return None
    if math.isinf(value):
        raise ValueError(f"column {column!r} holds an infinite number, which JSON has no word for")
    return value
