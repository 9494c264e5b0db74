"""Saves a byte stream as a file that is whole or not there (field report 173)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from batchctl.files.durable import make_folder, private, replace, storage

BUFFER = 1 << 20


async def save(chunks: AsyncIterator[bytes], path: Path) -> int:
    """Write all chunks to `path` and return their size in bytes.

    The bytes go to `<path>.part` first, which is started afresh each time and removed when the stream fails.

    Raises:
        StorageError: they could not be written.
    """
    part = path.with_name(f"{path.name}.part")
    make_folder(path.parent)
    size = 0
    try:
        with storage(part):
            file = open(part, "wb", BUFFER, opener=private)  # noqa: ASYNC230, SIM115  # the page cache takes it at once
        with file:
            async for chunk in chunks:
                with storage(part):
                    file.write(chunk)
                size += len(chunk)
            with storage(part):
                file.flush()
                await asyncio.to_thread(os.fsync, file.fileno())
        with storage(path):
            replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return size
