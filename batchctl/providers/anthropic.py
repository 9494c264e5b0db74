"""Anthropic: Message Batches and Messages through its SDK. Nothing is retried and no body is held in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from batchctl.core.errors import Fault, ProviderError, SystemicError
from batchctl.core.fingerprint import key_hint
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
from batchctl.providers.loading import loading
from batchctl.providers.sdk import PORTS, Sdk, address_of, custom_id_of, ids_of, json_array, send_timeout, trusted
from batchctl.providers.targets import anthropic_target
from batchctl.providers.times import LOOK_BACK, earliest, from_text
from batchctl.providers.wire import Wire

PATH = "/v1/messages/batches"
PAGE = 100
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

    def counts(self) -> dict[str, int]:
        """The provider's counts, those it gave."""
        given = msgspec.structs.asdict(self.request_counts) if self.request_counts else {}
        return {name: count for name, count in given.items() if count is not None}

    def created(self) -> Created:
        """The batch as an accepted create."""
        return Created(self.id, self.processing_status, from_text(self.expires_at))


class _Page(msgspec.Struct):
    data: list[_Batch]
    has_more: bool | None = None
    last_id: str | None = None


_BATCH = msgspec.json.Decoder(_Batch)
_PAGE = msgspec.json.Decoder(_Page)


class AnthropicProvider:
    """Both lanes of Anthropic.

    Args:
        base_url: where to send; None leaves it to ANTHROPIC_BASE_URL.
        api_key: None takes it from ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN.

    Raises:
        InputError: there is no key.
    """

    name = "anthropic"

    def __init__(self, *, base_url: str | None = None, api_key: str | None = None) -> None:
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
        return self._sdk.read(_BATCH, reply, Call.CREATE).created()

    async def check(self, batch_id: str) -> BatchCheck:
        """Ask how a batch stands."""
        reply = await self._sdk.call("get", _path(batch_id), Call.READ)
        batch = self._sdk.read(_BATCH, reply, Call.READ)
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

    async def find(self, submission: Submission, ledger: AbstractSet[str]) -> Found | Absent | Unknown:
        """Look for the batch of an intent.

        Anthropic keeps nothing of ours with a batch, so time and count make a candidate, and the custom ids of an
        ended one's first results decide, also about older ones: the intent's time may come from a wrong clock. For the
        same reason an older one that still runs leaves it open.
        """
        sure: list[_Batch] = []
        possible: list[_Batch] = []
        older: list[_Batch] = []
        for batch, in_time in [found async for found in self._candidates(submission) if found[0].id not in ledger]:
            matches = await self._matches(batch, submission)
            if matches:
                sure.append(batch)
            elif matches is None:
                (possible if in_time else older).append(batch)
        fitting = sure or possible
        if len(fitting) == 1:
            return Found(fitting[0].created(), certain=bool(sure))
        if not fitting and not older:
            return Absent()
        when = "were created since then" if fitting else "still run and are older, if no clock was wrong"
        return Unknown(
            tuple(batch.id for batch in fitting or older),
            f"{len(fitting or older)} batches of {submission.requests:,} requests {when}",
        )

    async def listed(self, since: datetime) -> AsyncIterator[Listed]:
        """All batches of the account created since then, newest first."""
        async for batch, _ in self._batches(since):
            yield Listed(
                created=batch.created(),
                key=None,
                requests=sum(batch.counts().values()),
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
        if (theirs.scheme or theirs.netloc) and _origin(theirs) != _origin(ours):
            raise SystemicError(
                f"anthropic names results on another host ({theirs.scheme}://{theirs.hostname}); the key stays here",
                hint="check the base URL; a proxy in between may rewrite addresses",
            )
        query = f"?{theirs.query}" if theirs.query else ""
        return f"{ours.scheme}://{ours.netloc}{theirs.path}{query}"

    async def _candidates(self, submission: Submission) -> AsyncIterator[tuple[_Batch, bool]]:
        """Listed batches that may be the intent's by count, and whether also by time."""
        async for batch, since in self._batches(submission.intent_at):
            if sum(batch.counts().values()) == submission.requests:
                yield batch, (from_text(batch.created_at) or since) >= since

    async def _batches(self, intent_at: datetime) -> AsyncIterator[tuple[_Batch, datetime]]:
        """Listed batches created about since an intent, each with that time by the provider's clock; newest first."""
        params: dict[str, Any] = {"limit": PAGE}
        while True:
            reply = await self._sdk.call("get", PATH, Call.READ, params=params)
            page = self._sdk.read(_PAGE, reply, Call.READ)
            since = earliest(intent_at, reply.server_time, datetime.now(UTC))
            for batch in page.data:
                if (from_text(batch.created_at) or since) < since - LOOK_BACK:
                    return
                yield batch, since
            if not page.has_more or not page.data:
                return
            params = {"limit": PAGE, "after_id": page.last_id or page.data[-1].id}

    async def _matches(self, batch: _Batch, submission: Submission) -> bool | None:
        """Whether an ended batch answers the submission's requests; None while that cannot be told."""
        if batch.processing_status != "ended" or not batch.results_url:
            return None
        wanted = await self._first_ids(batch.results_url)
        if not wanted:
            return None
        with submission.open_lines() as lines:
            for line in lines:
                wanted.discard(custom_id_of(line) or "")
                if not wanted:
                    return True
        return False

    async def _first_ids(self, results_url: str) -> set[str]:
        """The custom ids of the first result lines."""
        ids: set[str] = set()
        async with aclosing(ids_of(self._sdk.stream(self._own(results_url)))) as found:
            async for id_ in found:
                ids.add(id_)
                if len(ids) >= CONFIRM_IDS:
                    break
        return ids


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
