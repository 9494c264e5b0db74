"""Anthropic: Message Batches and Messages through its SDK. Nothing is retried and no body is held in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from datetime import datetime
from enum import Enum
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from batchctl.core.errors import Fault, ProviderError, SystemicError
from batchctl.core.fingerprint import key_hint
from batchctl.core.ids import PREFIX
from batchctl.core.words import counted
from batchctl.providers.addresses import check_address
from batchctl.providers.anthropic_format import ENVELOPE, LIMITS, AnthropicFormat, parse_error
from batchctl.providers.base import (
    Absent,
    Account,
    BatchCheck,
    BatchLimits,
    Completion,
    Created,
    Found,
    Listed,
    Phase,
    Submission,
    Unknown,
)
from batchctl.providers.errors import ANTHROPIC_MARKS, Call, ErrorReader, SdkErrors
from batchctl.providers.headers import anthropic_rates
from batchctl.providers.keys import find_key
from batchctl.providers.listing import ListQuery, newest, read_list
from batchctl.providers.loading import loading
from batchctl.providers.sdk import PORTS, Sdk, address_of, custom_id_of, ids_of, json_array, send_timeout, trusted
from batchctl.providers.targets import anthropic_target
from batchctl.providers.times import from_text
from batchctl.providers.wire import Wire

PATH = "/v1/messages/batches"
CONFIRM_IDS = 20  # result lines compared with the batch that was sent

_PHASES = {"in_progress": Phase.IN_PROGRESS, "canceling": Phase.CANCELING, "ended": Phase.ENDED}


class _Counts(msgspec.Struct):
    processing: int | None = None
    succeeded: int | None = None
    errored: int | None = None
    canceled: int | None = None
    expired: int | None = None


class _Batch(msgspec.Struct):
    id: str
    processing_status: str = "unknown"
    created_at: str | None = None
    expires_at: str | None = None
    cancel_initiated_at: str | None = None
    results_url: str | None = None
    request_counts: _Counts | None = None

    def moment(self) -> datetime | None:
        """When it was created."""
        return from_text(self.created_at)

    def counts(self) -> dict[str, int]:
        """The provider's counts, those it gave."""
        given = msgspec.structs.asdict(self.request_counts) if self.request_counts else {}
        return {name: count for name, count in given.items() if count is not None}

    def requests(self) -> int:
        """How many requests it has; 0 where that is not told."""
        return sum(self.counts().values())

    def created(self) -> Created:
        """The batch as an accepted create."""
        return Created(self.id, self.processing_status, from_text(self.expires_at))


_BATCH = msgspec.json.Decoder(_Batch)
_LIST = ListQuery(PATH, _BATCH, {"limit": 100}, "after_id")


class _Ids(Enum):
    """What the custom ids of a listed batch say about whose it is."""

    NONE = "not to be read yet"
    OTHERS = "not of this submission"
    SAME = "of this submission, as anybody's batch of the same items may have them"
    MADE = "of this submission and of our making"


class AnthropicProvider:
    """Both lanes of Anthropic.

    Args:
        base_url: where to send; None leaves it to ANTHROPIC_BASE_URL.
        api_key: None takes it from ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN.

    Raises:
        InputError: there is no key, or the address is none that may be used.
    """

    name = "anthropic"

    def __init__(self, *, base_url: str | None = None, api_key: str | None = None) -> None:
        check_address(self.name, base_url)
        key = find_key(self.name, api_key)
        self._hint = partial(key_hint, key)
        self._errors = ErrorReader(self.name, parse_error, ANTHROPIC_MARKS, (key,))
        self._sdk = Sdk(partial(_client, base_url, api_key), _exceptions, self._errors)
        self._wire = Wire(
            self._errors, AnthropicFormat().parse_completion, anthropic_rates, partial(anthropic_target, base_url, key)
        )

    def limits(self) -> BatchLimits:
        """Anthropic's limits on one batch."""
        return LIMITS

    async def account(self, salt: str) -> Account:
        """The address and key in use, with the workspace a header asks for."""
        async with self._sdk.mapped(Call.READ):
            client = self._sdk.client
            headers = {name.lower(): value for name, value in client.default_headers.items()}
            address = address_of(client.base_url, workspace=headers.get("anthropic-workspace-id"))
        return Account(address, self._hint(salt))

    async def submit(self, submission: Submission, uploaded: object) -> Created:  # noqa: ARG002  # no upload step
        """Create the batch with one call that streams the request lines."""
        start, end = ENVELOPE
        size = len(start) + submission.size - 1 + len(end)
        reply = await self._sdk.call(
            "post",
            PATH,
            Call.CREATE,
            timeout=send_timeout(size),
            headers={**submission.headers, "Content-Type": "application/json", "Content-Length": str(size)},
            content=json_array(submission.open_lines(), start, end),
        )
        return self._sdk.read(_BATCH, reply.body, Call.CREATE).created()

    async def check(self, batch_id: str) -> BatchCheck:
        """Ask how a batch stands."""
        reply = await self._sdk.call("get", _path(batch_id), Call.READ)
        batch = self._sdk.read(_BATCH, reply.body, Call.READ)
        self._errors.refuse_other(batch.id, batch_id)
        phase = _PHASES.get(batch.processing_status, Phase.IN_PROGRESS)
        counts = batch.counts()
        # an ended batch without an address (archived) must fail at the download, not pass as one without answers
        results = batch.results_url or f"{_path(batch_id)}/results"
        return BatchCheck(
            phase=phase,
            status=batch.processing_status,
            counts=counts,
            created_at=from_text(batch.created_at),
            expires_at=from_text(batch.expires_at),
            server_time=reply.server_time,
            canceled=batch.cancel_initiated_at is not None,
            expired=counts.get("expired", 0) > 0,
            outputs=(results,) if phase is Phase.ENDED else (),
        )

    async def results(self, check: BatchCheck) -> AsyncIterator[bytes]:
        """All result lines of an ended batch, in chunks."""
        for results_url in check.outputs:
            async for chunk in self._sdk.stream(self._own(results_url)):
                yield chunk

    async def cancel(self, batch_id: str) -> None:
        """Ask for a batch to be canceled; one that has ended already is no error."""
        try:
            await self._sdk.call("post", f"{_path(batch_id)}/cancel", Call.READ)
        except ProviderError as error:
            if error.fault is Fault.NOT_FOUND or (await self.check(batch_id)).phase is Phase.IN_PROGRESS:
                raise

    async def fence(self) -> str | None:
        """The id of the newest batch listed, "" where none is; None where this server has no list."""
        try:
            first = await newest(self._sdk, _LIST)
        except ProviderError as error:
            # a gateway may allow creates and no lists; where the key is at fault, the create says so
            if error.fault in (Fault.NOT_FOUND, Fault.PERMANENT) or error.status == HTTPStatus.FORBIDDEN:
                return None
            raise
        return first.id if first else ""

    async def find(self, submission: Submission, ledger: AbstractSet[str]) -> Found | Absent | Unknown:
        """Look for the batch of an intent.

        Anthropic keeps nothing of ours with a batch. The custom ids in an ended one's results prove it where they are
        of our making; an item's own ids may stand in anybody's batch of the same items, so with those it must also be
        the only one of its size that came after the intent. What may be older leaves it open: the intent's time may
        come from a wrong clock.
        """
        proven: list[_Batch] = []
        fitting: list[tuple[_Batch, bool]] = []
        doubtful: list[_Batch] = []
        for entry in await read_list(self._sdk, _LIST, submission.intent_at, submission.fence):
            batch, requests = entry.value, entry.value.requests()
            if batch.id in ledger or requests not in (0, submission.requests):
                continue
            evidence = await self._evidence(batch, submission)
            if evidence is _Ids.MADE:
                proven.append(batch)
            elif evidence is not _Ids.OTHERS and entry.in_time:
                fitting.append((batch, evidence is _Ids.SAME))
            elif evidence is not _Ids.OTHERS:
                doubtful.append(batch)
        if len(proven) == 1:
            return Found(proven[0].created(), certain=True, evidence="by its ids")
        if not proven and len(fitting) == 1:
            return _found(*fitting[0])
        candidates = proven or [batch for batch, _ in fitting] or doubtful
        if not candidates:
            return Absent()
        when = "could be it" if proven or fitting else "could be it, if a clock was wrong"
        return Unknown(
            tuple(batch.id for batch in candidates),
            f"{counted(len(candidates), 'batch')} of {counted(submission.requests, 'request')} {when}",
        )

    async def listed(self, since: datetime) -> AsyncIterator[Listed]:
        """All batches of the account created since then, newest first."""
        for entry in await read_list(self._sdk, _LIST, since):
            batch = entry.value
            yield Listed(
                created=batch.created(),
                key=None,
                requests=batch.requests(),
                created_at=batch.moment(),
                ids_at=batch.results_url if batch.processing_status == "ended" else None,
            )

    async def custom_ids(self, batch: Listed) -> AsyncIterator[str]:
        """The custom ids in the results of a listed batch; none before it has ended."""
        if batch.ids_at is not None:
            async for id_ in ids_of(self._sdk.stream(self._own(batch.ids_at))):
                yield id_

    async def uploads(self, since: datetime) -> AsyncIterator[tuple[str, str]]:  # noqa: ARG002
        """None: Anthropic has no input files."""
        nothing: tuple[tuple[str, str], ...] = ()
        for none in nothing:
            yield none

    async def discard(self, file_id: str) -> None:
        """Anthropic has no input files."""

    def complete(
        self, custom_id: str, endpoint: str, body: bytes, *, timeout: float, headers: Mapping[str, str] | None = None
    ) -> Awaitable[Completion]:
        """Send one request body as it is and wait for the answer."""
        return self._wire.complete(custom_id, endpoint, body, timeout=timeout, headers=headers)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._wire.aclose()
        await self._sdk.aclose()

    def _own(self, results_url: str) -> str:
        """The address of results; it must be on the host the key belongs to, since the key is sent along.

        Raises:
            SystemicError: it is elsewhere.
        """
        ours, theirs = urlsplit(str(self._sdk.client.base_url)), urlsplit(results_url)
        if not (theirs.scheme or theirs.netloc):
            return results_url  # the SDK puts it behind its base URL
        if _origin(theirs) != _origin(ours):
            raise SystemicError(
                f"anthropic names results on another host ({theirs.scheme}://{theirs.hostname}); the key stays here",
                hint="check the base URL; a proxy in between may rewrite addresses",
            )
        query = f"?{theirs.query}" if theirs.query else ""
        return f"{ours.scheme}://{ours.netloc}{theirs.path}{query}"

    async def _evidence(self, batch: _Batch, submission: Submission) -> _Ids:
        """What the custom ids in a batch's results say; nothing before it has ended."""
        if batch.processing_status != "ended" or not batch.results_url:
            return _Ids.NONE
        wanted = await self._first_ids(batch.results_url)
        if not wanted:
            return _Ids.NONE
        made = any(id_.startswith(PREFIX) for id_ in wanted)
        with submission.open_lines() as lines:
            for line in lines:
                wanted.discard(custom_id_of(line) or "")
                if not wanted:
                    return _Ids.MADE if made else _Ids.SAME
        return _Ids.OTHERS

    async def _first_ids(self, results_url: str) -> set[str]:
        """The custom ids of the first result lines; none where they are not to be had from here."""
        ids: set[str] = set()
        try:
            async with aclosing(ids_of(self._sdk.stream(self._own(results_url)))) as found:
                async for id_ in found:
                    ids.add(id_)
                    if len(ids) >= CONFIRM_IDS:
                        break
        except SystemicError:
            return set()
        except ProviderError as error:
            if error.fault not in (Fault.NOT_FOUND, Fault.PERMANENT):
                raise
            return set()
        return ids


def _found(batch: _Batch, same_ids: bool) -> Found | Unknown:
    if same_ids:
        return Found(batch.created(), certain=True, evidence="by its time, count and ids")
    if not batch.requests():
        return Unknown((batch.id,), f"the list does not tell how many requests {batch.id} has")
    return Found(batch.created(), certain=False, evidence="by time and count; its results will confirm it")


def _path(batch_id: str) -> str:
    return f"{PATH}/{quote(batch_id, safe='')}"


def _origin(url: Any) -> tuple[str, str | None, int | None]:
    return url.scheme.lower(), url.hostname, url.port or PORTS.get(url.scheme.lower())


def _client(base_url: str | None, api_key: str | None) -> Any:
    with loading():
        from anthropic import AsyncAnthropic, DefaultAioHttpClient

    # a redirect would send the key and the body where nobody asked for
    return AsyncAnthropic(
        base_url=base_url,
        api_key=api_key,
        max_retries=0,
        http_client=DefaultAioHttpClient(verify=trusted(), follow_redirects=False),
    )


def _exceptions() -> SdkErrors:
    import anthropic

    return SdkErrors(
        status=anthropic.APIStatusError,
        connection=anthropic.APIConnectionError,
        unreadable=anthropic.APIResponseValidationError,
        base=anthropic.AnthropicError,
    )
