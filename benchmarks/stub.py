"""A stand-in for the providers that costs next to nothing: it logs what it gets and sends result files as they lie.

Run as `python -m benchmarks.stub FOLDER [--slow BATCH_ID] [--keep] [--once]`; it prints its port. A batch has
ended once `FOLDER/BATCH_ID.jsonl` exists; `FOLDER/delay` holds the seconds before each answer.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

PIECE = 256 * 1024
SLOW_BYTES_A_SECOND = 2_000_000


class Stub:
    """One provider account.

    Args:
        folder: result files, and the log of calls.
        slow: the batch whose results trickle.
        keep: also keep the bodies of what is sent.
        once: remove a result file when it was sent, since many would fill the disk.
    """

    def __init__(self, folder: Path, slow: str | None, *, keep: bool, once: bool) -> None:
        self._folder = folder
        self._slow = slow
        self._keep = keep
        self._once = once
        self._made = 0
        self._open = 0
        self._log = (folder / "calls.jsonl").open("ab", buffering=0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while head := await self._head(reader):
                self._open += 1
                try:
                    await self._answer(reader, writer, *head)
                finally:
                    self._open -= 1
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _head(self, reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str]] | None:
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        except asyncio.IncompleteReadError:
            return None
        method, path, _ = lines[0].split(" ")
        pairs = (line.partition(": ") for line in lines[1:] if line)
        return method, path.partition("?")[0], {name.lower(): value for name, _, value in pairs}

    async def _answer(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        method: str,
        path: str,
        headers: dict[str, str],
    ) -> None:
        started, together = time.time(), self._open
        size, digest = await self._body(reader, headers, self._made + 1)
        delay = self._folder / "delay"
        if delay.exists():
            await asyncio.sleep(float(delay.read_text(encoding="utf-8")))
        if method == "POST":
            self._made += 1
        if path.endswith(("/results", "/content")):
            name = path.split("/")[-2]
            await self._send_file(writer, name)
            if self._once:
                (self._folder / f"{name}.jsonl").unlink()
        else:
            self._send(writer, self._object(method, path, size, headers.get("host", "")))
            await writer.drain()
        call = {"at": started, "method": method, "path": path, "bytes": size, "sha256": digest, "together": together}
        self._write_log(call | {"done": time.time()})

    def _write_log(self, call: dict[str, object]) -> None:
        if not (self._folder / "calls.jsonl").exists():
            self._log.close()
            self._log = (self._folder / "calls.jsonl").open("ab", buffering=0)
        self._log.write(json.dumps(call).encode() + b"\n")

    async def _body(self, reader: asyncio.StreamReader, headers: dict[str, str], number: int) -> tuple[int, str]:
        digest, size = hashlib.sha256(), 0
        file = (self._folder / f"body-{number}").open("wb") if self._keep else None
        async for piece in _pieces(reader, headers):
            digest.update(piece)
            size += len(piece)
            if file:
                file.write(piece)
        if file:
            file.close()
        return size, digest.hexdigest()

    def _object(self, method: str, path: str, size: int, host: str) -> dict[str, object]:
        now = datetime.now(UTC)
        if method == "GET" and path.endswith(("/batches", "/files")):
            return {"data": [], "has_more": False}
        if path == "/v1/files":
            return {"id": f"file-{self._made}", "object": "file", "bytes": size, "purpose": "batch"}
        if path == "/v1/batches":
            return {"id": f"batch_{self._made}", "object": "batch", "status": "validating"}
        batch_id = f"msgbatch_{self._made:06d}" if method == "POST" else path.rsplit("/", maxsplit=1)[-1]
        ended = (self._folder / f"{batch_id}.jsonl").exists()
        return {
            "id": batch_id,
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": {"processing": 0, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0},
            "created_at": now.isoformat(),
            "expires_at": (now + timedelta(days=1)).isoformat(),
            "ended_at": now.isoformat() if ended else None,
            "results_url": f"http://{host}/v1/messages/batches/{batch_id}/results" if ended else None,
        }

    @staticmethod
    def _send(writer: asyncio.StreamWriter, entry: dict[str, object]) -> None:
        body = json.dumps(entry).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )

    async def _send_file(self, writer: asyncio.StreamWriter, name: str) -> None:
        path = self._folder / f"{name}.jsonl"
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/binary\r\nContent-Length: %d\r\n\r\n" % path.stat().st_size
        )
        await writer.drain()
        with path.open("rb") as file:
            if name != self._slow:
                await asyncio.get_running_loop().sendfile(writer.transport, file)
                return
            while piece := file.read(SLOW_BYTES_A_SECOND // 10):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.1)


async def _pieces(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncIterator[bytes]:
    """The body in pieces, by its length or in chunks."""
    if headers.get("transfer-encoding") == "chunked":
        while left := int(await reader.readline(), 16):
            while left:
                piece = await reader.read(min(left, PIECE))
                left -= len(piece)
                yield piece
            await reader.readline()
        await reader.readline()
        return
    left = int(headers.get("content-length", 0))
    while left:
        piece = await reader.read(min(left, PIECE))
        if not piece:
            raise ConnectionResetError
        left -= len(piece)
        yield piece


async def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--slow")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--once", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    account = Stub(given.folder, given.slow, keep=given.keep, once=given.once)
    server = await asyncio.start_server(account.serve, "127.0.0.1", 0, limit=2 * PIECE)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
