"""What a run has sent, beside the state file: a copy of that file that is older than the last create is told by it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from batchctl.files.durable import make_folder, private, storage, sync_folder, write_all


class Sent(msgspec.Struct, frozen=True):
    """One sending of a batch.

    Args:
        sends: how often it had been sent by then, this time included; 0 takes the earlier ones back.
        key: its intent key.
        at: when (RFC 3339).
        address: where to; None where that is not known.
        key_hint: tells one API key from another, and nothing else about it.
        fence: the newest batch the provider listed before; None where nobody looked.
    """

    batch: int
    sends: int
    key: str = ""
    at: str = ""
    requests: int = 0
    address: str | None = None
    key_hint: str | None = None
    fence: str | None = None


_DECODER = msgspec.json.Decoder(Sent)


class SentLog:
    """The last sending of each batch of a run; read on opening, a line that is no entry is passed over.

    Raises:
        StorageError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.last: dict[int, Sent] = {}
        if not path.exists():
            return
        with storage(path):
            lines = path.read_bytes().split(b"\n")
        for line in lines:
            try:
                self._keep(_DECODER.decode(line))
            except msgspec.DecodeError:
                continue  # torn by a crash, and then nothing was sent

    def _keep(self, entry: Sent) -> None:
        if entry.sends:
            self.last[entry.batch] = entry
        else:
            self.last.pop(entry.batch, None)

    def note(self, entry: Sent) -> None:
        """Write an entry down, durably.

        Raises:
            StorageError: it could not be written, so nothing may be sent.
        """
        make_folder(self._path.parent)
        new = not self._path.exists()
        with storage(self._path):
            handle = private(str(self._path), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                write_all(handle, b"\n" * (not new) + msgspec.json.encode(entry) + b"\n")
                os.fsync(handle)
            finally:
                os.close(handle)
        if new:
            sync_folder(self._path.parent)
        self._keep(entry)
