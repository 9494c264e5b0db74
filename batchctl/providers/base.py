"""What a provider must offer: the batch Protocol, the sync Protocol, and the neutral types that pass between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import IO, Any, Protocol

from batchctl.core.limiter import Amounts
from batchctl.core.model import Answer, Usage


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """A provider's limits on one batch; data, lowered by option.

    Args:
        requests: most requests in one batch.
        bytes: most bytes of the body or file as sent, envelope included.
        request_bytes: most bytes of one request line.
        envelope_bytes: bytes around all lines together.
        separator_bytes: bytes after (or between) lines.
        one_model: whether all requests of a batch must name one model.
        custom_id_pattern: regular expression a custom id must match in full.
    """

    requests: int
    bytes: int
    request_bytes: int
    envelope_bytes: int
    separator_bytes: int
    one_model: bool
    custom_id_pattern: str


@dataclass(frozen=True, slots=True)
class Submission:
    r"""One batch about to be created, or whose create is to be settled.

    Args:
        key: the intent key, unique for ever; goes into metadata and file name where the provider has them.
        requests: number of request lines.
        size: bytes of the lines, each with its newline.
        endpoint: path all requests go to.
        open_lines: opens the request lines (`\\n` after each) as a binary, seekable, read-only stream.
        intent_at: when the intent was committed (UTC).
        fence: what `BatchProvider.fence` said before; None where it was not asked or could not tell.
        file_id: an input file that an earlier try of this intent uploaded.
        headers: extra headers the requests need (beta names), never inside bodies (field report 41).
    """

    key: str
    requests: int
    size: int
    endpoint: str
    open_lines: Callable[[], IO[bytes]]
    intent_at: datetime
    file_id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    fence: str | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """A batch the provider has accepted; `warnings` say what of the request it did not do."""

    batch_id: str
    status: str
    expires_at: datetime | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """Settling found the batch of an intent.

    Args:
        certain: false where only count and time could be compared yet, so that its results must confirm it.
        evidence: what it was told by, for people.
    """

    created: Created
    certain: bool
    evidence: str


@dataclass(frozen=True, slots=True)
class Absent:
    """No batch of this intent is listed. `file_id` is its uploaded input file, if that exists and can be reused."""

    file_id: str | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """Settling cannot tell."""

    candidates: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A batch in the provider's list, whoever sent it.

    Args:
        key: the intent key it carries, where the provider keeps one.
        requests: how many it holds; 0 where the provider does not say yet.
        created_at: by the provider's clock, where it tells.
        ids_at: where the custom ids of its requests can be read; None where they cannot be (yet).
        input_file: the uploaded file it was made from.
        outputs: its result files, where they have ids of their own.
        refused: it was refused whole, so nothing of it ran.
    """

    created: Created
    key: str | None
    requests: int
    created_at: datetime | None
    ids_at: str | None
    input_file: str | None = None
    outputs: tuple[str, ...] = ()
    refused: bool = False


class Phase(StrEnum):
    """The provider's status in our words; the provider's own word is kept beside it."""

    IN_PROGRESS = "in_progress"  # also every word we do not know: shown, bounded by the deadline (field report 85)
    CANCELING = "canceling"
    ENDED = "ended"  # there may be answers to collect, complete or not
    FAILED = "failed"  # refused whole after create: nothing ran, nothing is billed


@dataclass(frozen=True, slots=True)
class BatchFault:
    """One reason why a provider refused a whole batch. `line` is 1-based in the input file."""

    code: str
    message: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class BatchCheck:
    """One look at a batch.

    Args:
        status: the provider's own word.
        counts: the provider's counts, for display only (field report 99).
        key: the intent key it carries, where this provider keeps one.
        server_time: the provider's clock at the answer, from its Date header.
        canceled: the provider says the batch was canceled, by whomever.
        expired: the provider says the batch (or part of it) ran out of time.
        outputs: references to result parts (file ids), empty where there are none.
        unexplained: it names no results, and nothing it says proves that there are none.
        faults: why it failed, where `phase` is FAILED.
        queue_full: `phase` is FAILED only for lack of queue room (field report 64).
        too_large: `phase` is FAILED because the batch has too many requests or bytes.
        systemic: `phase` is FAILED because of the account or the model, whatever lines it names.
    """

    phase: Phase
    status: str
    counts: Mapping[str, int]
    created_at: datetime | None
    expires_at: datetime | None
    server_time: datetime | None
    canceled: bool = False
    expired: bool = False
    outputs: tuple[str, ...] = ()
    unexplained: bool = False
    key: str | None = None
    faults: tuple[BatchFault, ...] = ()
    queue_full: bool = False
    too_large: bool = False
    systemic: bool = False


@dataclass(frozen=True, slots=True)
class Account:
    """Where batches go and whose they are, as far as it may be written down.

    Args:
        address: the base URL without user and query, and the organization, project or workspace asked for in headers.
        key_hint: 12 hex digits that change with the key; the key itself cannot be told from them.
    """

    address: str
    key_hint: str


class BatchProvider(Protocol):
    """The batch lane of a provider. Methods raise `ProviderError`, classified; nothing is retried inside."""

    name: str

    def limits(self) -> BatchLimits:
        """The provider's limits on one batch."""
        ...

    async def account(self, salt: str) -> Account:
        """The address and key in use; `salt` goes into the hint. Nothing is sent."""
        ...

    async def submit(self, submission: Submission, uploaded: Callable[[str], None]) -> Created:
        """Create the batch with exactly one create call; `uploaded` gets an input file id as soon as it exists."""
        ...

    async def check(self, batch_id: str) -> BatchCheck:
        """Ask how a batch stands; safe to repeat."""
        ...

    def results(self, check: BatchCheck) -> AsyncIterator[bytes]:
        """All result bytes of an ended batch, output and error parts, in chunks; each part ends with a newline."""
        ...

    async def cancel(self, batch_id: str) -> None:
        """Ask for a batch to be canceled; finished answers stay collectable."""
        ...

    async def fence(self) -> str | None:
        """The id of the newest batch listed, "" where none is: what stands before it later came after this moment.

        None where there is no list, or where batches carry a key, so that nobody needs it.
        """
        ...

    async def find(self, submission: Submission, ledger: AbstractSet[str]) -> Found | Absent | Unknown:
        """Look for the batch of an intent in the provider's lists; `ledger` holds the ids already accounted for."""
        ...

    def listed(self, since: datetime) -> AsyncIterator[Listed]:
        """All batches of the account created since then, newest first, to rebuild what a state file has lost."""
        ...

    def custom_ids(self, batch: Listed) -> AsyncIterator[str]:
        """The custom ids of a listed batch's requests, in any order; none where they cannot be read (yet)."""
        ...

    def uploads(self, since: datetime) -> AsyncIterator[tuple[str, str]]:
        """Uploaded input files since then as (file id, intent key); none where the provider has no files."""
        ...

    async def discard(self, file_id: str) -> None:
        """Delete an uploaded input file that no batch uses; a file that is gone already is no error."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


@dataclass(slots=True)  # one per call: frozen costs three times as much to make
class RateHeaders:
    """What the answer's rate-limit headers said; None where absent."""

    requests_limit: int | None = None
    requests_remaining: int | None = None
    tokens_limit: int | None = None
    tokens_remaining: int | None = None
    output_tokens_limit: int | None = None
    output_tokens_remaining: int | None = None


@dataclass(slots=True)  # one per call: frozen costs three times as much to make
class Completion:
    """One answer of the ordinary endpoint and the limits it reported; None where they were not looked at."""

    answer: Answer
    rate: RateHeaders | None


class SyncProvider(Protocol):
    """The sync lane of a provider."""

    name: str

    def complete(
        self, custom_id: str, endpoint: str, body: bytes, *, timeout: float, headers: Mapping[str, str] | None = None
    ) -> Awaitable[Completion]:
        """Send one request body as it is and wait for the answer; one HTTP call, no retries inside."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


class RequestFormat(Protocol):
    """How a provider writes requests and results; pure, needs no SDK and no network."""

    name: str
    default_endpoint: str
    keeps_keys: bool  # whether a batch keeps the intent key, so that lists tell it from every other
    default_max_tokens: int | None  # used when none is asked for; None leaves it to the provider

    def limits(self) -> BatchLimits:
        """The provider's limits on one batch (also behind `BatchProvider.limits`)."""
        ...

    def body(
        self,
        *,
        endpoint: str,
        model: str,
        prompt: str,
        system: str | None,
        max_tokens: int | None,
        params: Mapping[str, Any],
    ) -> dict[str, Any]:
        """The request body for one prompt, as the provider's ordinary endpoint takes it."""
        ...

    def head(self, custom_id: str, endpoint: str) -> bytes:
        """The bytes of a batch line before the body; the line is head + body + `}`."""
        ...

    def split(self, line: bytes) -> tuple[str, bytes]:
        """Endpoint and body of a batch line that `head` began."""
        ...

    def charge(self, usage: Usage) -> Amounts:
        """What one request takes of the sync lane's limits a minute; no output where it is not limited apart."""
        ...

    def problems(self, body: Mapping[str, Any], endpoint: str) -> list[str]:
        """What the provider would refuse in this body, each with its way out; empty when there is nothing."""
        ...

    def parse_request(self, line: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
        """A finished request line in either provider's batch-file shape as (custom id, endpoint, body)."""
        ...

    def parse_result(self, raw: bytes) -> Answer:
        """One line of a result file; raises ValueError with the reason for a line that says nothing usable."""
        ...
