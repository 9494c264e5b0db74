"""OpenAI's batches and files as its answers tell them, and what they mean in our words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from batchctl.core.model import ErrorKind
from batchctl.providers.base import BatchCheck, BatchFault, Created, Listed, Phase
from batchctl.providers.decoding import Number
from batchctl.providers.errors import OPENAI_MARKS
from batchctl.providers.openai_results import classify_error
from batchctl.providers.times import from_unix

METADATA_KEY = "batchctl_key"

_PHASES = {
    "cancelling": Phase.CANCELING,
    "canceling": Phase.CANCELING,
    "completed": Phase.ENDED,
    "expired": Phase.ENDED,
    "cancelled": Phase.ENDED,
    "canceled": Phase.ENDED,
    "failed": Phase.FAILED,
}
"""Every word that ends or changes a wait; vendors that copy the API write them in upper case or with one l."""


class _Fault(msgspec.Struct):
    code: str | None = None
    message: str | None = None
    line: int | None = None


class _Faults(msgspec.Struct):
    data: list[_Fault] | None = None


class Batch(msgspec.Struct):
    """A batch as its endpoints and lists tell it."""

    id: str
    status: str = "unknown"
    created_at: Number = None
    expires_at: Number = None
    errors: _Faults | None = None
    request_counts: dict[str, int | None] | None = None
    metadata: dict[str, str | None] | None = None
    input_file_id: str | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None

    def moment(self) -> datetime | None:
        """When it was created."""
        return from_unix(self.created_at)

    def created(self) -> Created:
        """The batch as an accepted create."""
        return Created(self.id, self.status, from_unix(self.expires_at))

    def key(self) -> str | None:
        """The intent key it carries, if it does."""
        return (self.metadata or {}).get(METADATA_KEY)

    def listed(self) -> Listed:
        """The batch as an entry of the account's list."""
        return Listed(
            created=self.created(),
            key=self.key(),
            requests=(self.request_counts or {}).get("total") or 0,
            created_at=self.moment(),
            ids_at=self.input_file_id,
            input_file=self.input_file_id,
            outputs=self._outputs(),
            refused=_PHASES.get(self.status.lower()) is Phase.FAILED,
        )

    def _outputs(self) -> tuple[str, ...]:
        return tuple(file_id for file_id in (self.output_file_id, self.error_file_id) if file_id)

    def check(self, server_time: datetime | None) -> BatchCheck:
        """The batch as one look found it."""
        word = self.status.lower()
        outputs = self._outputs()
        counts = {name: count for name, count in (self.request_counts or {}).items() if count is not None}
        phase = _PHASES.get(word, Phase.IN_PROGRESS)
        if phase is Phase.FAILED and (outputs or counts.get("completed", 0) > 0):
            phase = Phase.ENDED  # it ran: what it answered is there to be collected
        faults = self._faults() if phase is Phase.FAILED else ()
        words = [f"{fault.code} {fault.message}" for fault in faults]
        return BatchCheck(
            phase=phase,
            status=self.status,
            counts=counts,
            created_at=from_unix(self.created_at),
            expires_at=from_unix(self.expires_at),
            server_time=server_time,
            canceled=word in ("cancelling", "canceling", "cancelled", "canceled"),
            expired=word == "expired",
            outputs=outputs if phase is Phase.ENDED else (),
            unexplained=not self.output_file_id and not _tells_nothing_was_answered(word, counts),
            key=self.key(),
            faults=faults,
            queue_full=any(map(OPENAI_MARKS.queue_full.search, words)),
            too_large=any(map(OPENAI_MARKS.too_large.search, words)),
            systemic=any(
                classify_error(None, fault.code, None, fault.message) is ErrorKind.SYSTEMIC for fault in faults
            ),
        )

    def _faults(self) -> tuple[BatchFault, ...]:
        """Why it was refused whole."""
        given = (self.errors and self.errors.data) or []
        return tuple(BatchFault(fault.code or "unknown", fault.message or "", fault.line) for fault in given)


def _tells_nothing_was_answered(word: str, counts: Mapping[str, int]) -> bool:
    """Whether the counts of an ended batch without an output file say so; a completed one must account for all."""
    if counts.get("completed") != 0:
        return False
    return word != "completed" or 0 < counts.get("total", 0) <= counts.get("failed", 0)


class File(msgspec.Struct):
    """An uploaded file."""

    id: str
    expires_at: Number = None
    filename: str | None = None
    created_at: Number = None
    bytes: Number = None

    def moment(self) -> datetime | None:
        """When it was uploaded."""
        return from_unix(self.created_at)


BATCH = msgspec.json.Decoder(Batch)
FILE = msgspec.json.Decoder(File)
