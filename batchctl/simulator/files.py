"""OpenAI's files: uploads, and the output and error files of batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from batchctl.simulator.batch import Batch
from batchctl.simulator.codec import short_hash
from batchctl.simulator.kinds import CODE, SUCCESS_CODES
from batchctl.simulator.services import Services

RETENTION = 30 * 86_400


@dataclass(slots=True)
class StoredFile:
    """One file; `size` is unknown for a result file until it is written."""

    id: str
    filename: str
    purpose: str
    created_at: float
    expires_at: float | None
    blob: str
    size: int | None
    effects: dict[str, Any] = field(default_factory=dict)
    batch: Batch | None = None
    deleted: bool = False

    def public(self) -> dict[str, Any]:
        """Give the file object (openai types/file_object.py)."""
        shown = {
            "id": self.id,
            "object": "file",
            "bytes": self.size,
            "created_at": int(self.created_at),
            "expires_at": None if self.expires_at is None else int(self.expires_at),
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": None,
        }
        if self.effects.get("no_status"):
            del shown["status"], shown["status_details"]
        return shown


class Files:
    """All files in the order of their creation."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._files: dict[str, StoredFile] = {}

    def get(self, file_id: str) -> StoredFile | None:
        """Find a file that still exists."""
        file = self._files.get(file_id)
        return file if file and self._exists(file) else None

    def oldest_first(self) -> Iterator[StoredFile]:
        """Yield the files that still exist."""
        return (file for file in self._files.values() if self._exists(file))

    def add_upload(self, file: StoredFile) -> None:
        """Take in an upload whose bytes are committed."""
        self._files[file.id] = file
        self._services.journal.write(
            {
                "event": "file",
                "at": file.created_at,
                "id": file.id,
                "filename": file.filename,
                "purpose": file.purpose,
                "expires_at": file.expires_at,
                "size": file.size,
                "effects": file.effects,
            }
        )

    def restore(self, event: dict[str, Any]) -> None:
        """Take in an upload of an earlier process."""
        fields = {name: event[name] for name in ("id", "filename", "purpose", "expires_at", "size", "effects")}
        self._files[event["id"]] = StoredFile(created_at=event["at"], blob=event["id"], **fields)

    def add_outputs(self, batch: Batch) -> None:
        """Give an ended batch its result files, where they have lines."""
        assert batch.ended_at is not None
        for kind, present in (("output", has_output(batch)), ("error", has_errors(batch))):
            if present:
                file_id = result_file_id(batch, kind)
                self._files[file_id] = StoredFile(
                    id=file_id,
                    filename=f"{batch.id}_{kind}.jsonl",
                    purpose="batch_output",
                    created_at=batch.ended_at,
                    expires_at=batch.ended_at + (batch.output_expires or RETENTION),
                    blob=file_id,
                    size=None,
                    batch=batch,
                )

    def delete(self, file: StoredFile, at: float) -> None:
        """Forget a file; a batch made from it keeps its requests."""
        file.deleted = True
        self._services.journal.write({"event": "file_deleted", "at": at, "id": file.id})

    def _exists(self, file: StoredFile) -> bool:
        return not file.deleted and (file.expires_at is None or self._services.clock.now() < file.expires_at)


def result_file_id(batch: Batch, kind: str) -> str:
    """Name a result file so that a later process names it the same."""
    return f"file-{short_hash(batch.id, kind).hex()}"


def has_output(batch: Batch) -> bool:
    """Tell whether any item succeeded; without one there is no output file."""
    codes = batch.kind_codes(batch.done)
    return len(codes) != len(codes.translate(None, delete=SUCCESS_CODES))


def has_errors(batch: Batch) -> bool:
    """Tell whether any item failed or expired; without one there is no error file."""
    if batch.ending == "failed":
        return False
    codes = batch.kind_codes(batch.done)
    quiet = SUCCESS_CODES + bytes((CODE["missing"], CODE["canceled"]))
    return bool(codes.translate(None, delete=quiet)) or (batch.ending == "expired" and batch.done < len(batch.items))
