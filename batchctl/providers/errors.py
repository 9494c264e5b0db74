"""Turns a failed provider call into a `ProviderError`: what was refused, and whether it may have been accepted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from batchctl.core.errors import BatchctlError, Fault, ProviderError
from batchctl.core.model import ErrorKind, ItemError
from batchctl.providers.headers import retry_after

UNREADABLE = "unreadable_answer"  # the type of a 2xx that says nothing usable
MAX_TEXT = 500  # characters of a provider's message; it may echo a request
_KEYS = re.compile(r"\bsk-[\w*-]{3,}")  # providers echo keys with a few characters masked
_TITLE = re.compile(rb"<title[^>]*>([^<]{1,200})", re.IGNORECASE)
LONGEST_REQUEST_ID = 64  # characters
_SHORTEST_KEY = 6  # a shorter one is a placeholder, and replacing it would garble the text


class Call(StrEnum):
    """What a call does at the provider, which decides what its failure may have left behind."""

    READ = "read"  # safe to repeat
    CREATE = "create"  # an upload or a create: repeating it may buy the same work twice
    SYNC = "sync"  # one request of the ordinary endpoint


@dataclass(frozen=True, slots=True)
class Marks:
    """The words by which one provider refuses a whole batch, searched in its error's code, param and message."""

    too_large: re.Pattern[str]
    queue_full: re.Pattern[str]
    file_not_ready: re.Pattern[str]
    storage_full: re.Pattern[str]


_NEVER = re.compile(r"(?!)")

ANTHROPIC_MARKS = Marks(
    too_large=re.compile(
        r"request_too_large|too_large_after_decoding|requests: list should have at most|too many requests in",
        re.IGNORECASE,
    ),
    queue_full=re.compile(r"processing queue|batch requests?\b.{0,40}\bqueue", re.IGNORECASE),
    file_not_ready=_NEVER,
    storage_full=_NEVER,
)

OPENAI_MARKS = Marks(
    too_large=re.compile(r"too_many_tasks|file_too_large|too many (?:requests|tasks|lines) in", re.IGNORECASE),
    queue_full=re.compile(r"token_limit_exceeded|enqueued (?:token|request)", re.IGNORECASE),
    file_not_ready=re.compile(
        r"no such file|\bfile\b.{0,100}(?:not (?:be )?found|does ?n[o']t exist|not ready|pending|being processed)"
        r"|(?:find|locate)\b.{0,40}\bfile\b",
        re.IGNORECASE,
    ),
    storage_full=re.compile(
        r"quotaExceeded|storage_quota|storage (?:quota|limit|space)|files? (?:quota|storage)", re.IGNORECASE
    ),
)

_HINTS = {
    Fault.SYSTEMIC: "check the key, the account's billing, the model's name and the base URL; every item stays open",
    Fault.TOO_LARGE: "lower --max-bytes or --max-requests",
    Fault.STORAGE_FULL: "delete files at the provider that no batch needs any more",
}


@dataclass(frozen=True, slots=True)
class SdkErrors:
    """One SDK's exception classes, by what they say."""

    status: type[Exception]  # an answer that is not 2xx; has `response`
    connection: type[Exception]  # no answer
    unreadable: type[Exception]  # a 2xx whose body is not what was asked for
    base: type[Exception]  # the rest: configuration and credentials


class ErrorReader:
    """Reads the failures of one provider.

    Args:
        name: the provider's name.
        parse_error: reads its error envelope.
        marks: its words for refusing a batch.
        secrets: texts that must not appear in any message.
    """

    def __init__(
        self,
        name: str,
        parse_error: Callable[[bytes, int], ItemError | None],
        marks: Marks,
        secrets: tuple[str | None, ...] = (),
    ) -> None:
        self._name = name
        self._parse_error = parse_error
        self._marks = marks
        self._secrets = tuple(secret for secret in secrets if secret and len(secret) >= _SHORTEST_KEY)

    def of_exception(self, error: Exception, call: Call, sdk: SdkErrors | None = None) -> ProviderError | None:
        """What an exception of the SDK or of its transport means; None for one that is none of theirs."""
        if isinstance(error, ProviderError):
            return error
        if sdk and isinstance(error, sdk.status):
            response: Any = error.response  # type: ignore[attr-defined]  # both SDKs keep it on this class
            return self.of_answer(response.status_code, response.headers, response.content, call)
        if sdk and isinstance(error, sdk.unreadable):
            return self.unreadable(str(error), call)
        if (sdk and isinstance(error, sdk.connection)) or _is_transport(error):
            return self._of_connection(error, call)
        if sdk and isinstance(error, sdk.base):
            return self._error(f"{self._name} client: {error}", Fault.SYSTEMIC)
        return None

    def of_answer(self, status: int, headers: Mapping[str, str], body: bytes, call: Call) -> ProviderError:
        """What an answer other than 2xx means."""
        error = self._parse_error(body, status)
        words = body[: 4 * MAX_TEXT].decode("utf-8", "replace") if error else ""
        # not in the sync lane, whose messages become items' errors, which are counted by their text
        request = "" if call is Call.SYNC else _request_of(headers)
        result = self._error(
            f"{self._name} answered {status}{request}: {error.message if error else _outline(body)}",
            self._refused_whole(status, words, call) or _fault(status, error, call),
        )
        result.status = status
        result.retry_after = retry_after(headers, datetime.now(UTC))
        if error:
            result.type, result.code = error.type, error.code
        return result

    def timed_out(self, seconds: float) -> ProviderError:
        """A call of the sync lane whose time was over; it may have been worked on."""
        return self._of_connection(TimeoutError(f"after {seconds:g} s"), Call.SYNC)

    def unreadable(self, reason: str, call: Call) -> ProviderError:
        """A 2xx whose body says nothing usable; the create behind it may well have happened."""
        result = self._error(f"{self._name} gave an unreadable answer: {reason}", _lost(call))
        result.type = UNREADABLE
        return result

    def too_long(self, limit: int) -> ProviderError:
        """An answer of the sync lane that does not end; it may be billed, so it is not asked for again."""
        result = self._error(f"{self._name} gave an answer of more than {limit:,} bytes", Fault.PERMANENT)
        result.type = UNREADABLE
        return result

    def refuse_other(self, found: str, wanted: str) -> None:
        """Refuse an answer that tells of another batch than was asked about, as a mixed-up cache gives it.

        Raises:
            ProviderError: it does.
        """
        if found != wanted:
            raise self.unreadable(f"it tells of {found!r}, and was asked about {wanted!r}", Call.READ)

    def _refused_whole(self, status: int, words: str, call: Call) -> Fault | None:
        """The fault of a batch that was surely not accepted for its size, the queue or its file."""
        if status == 413:  # noqa: PLR2004  # often from the edge, with a body that says nothing
            return Fault.PERMANENT if call is Call.SYNC else Fault.TOO_LARGE
        if call is not Call.CREATE or status >= 500:  # noqa: PLR2004
            return None
        marks = self._marks
        for pattern, fault in (
            (marks.too_large, Fault.TOO_LARGE),
            (marks.queue_full, Fault.QUEUE_FULL),
            (marks.storage_full, Fault.STORAGE_FULL),
            (marks.file_not_ready, Fault.FILE_NOT_READY),
        ):
            if pattern.search(words):
                return fault
        return None

    def _of_connection(self, error: Exception, call: Call) -> ProviderError:
        causes = list(_causes(error))
        deepest = causes[-1]
        text = f"{self._name}: no answer ({type(deepest).__name__}: {deepest})"
        if _misaddressed(causes):
            return self._error(text, Fault.SYSTEMIC)
        result = self._error(text, Fault.RETRY if _never_connected(causes) else _lost(call))
        if any(isinstance(cause, OSError) and cause.errno in _NO_DESCRIPTORS for cause in causes):
            result.type = "too_many_open_files"
            result.hint = "too many open files: raise the limit (`ulimit -n`) or lower --concurrency"
        return result

    def _error(self, text: str, fault: Fault) -> ProviderError:
        """An error in one short line without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "[key]")
        return ProviderError(_KEYS.sub("[key]", " ".join(text.split()))[:MAX_TEXT], fault=fault, hint=_HINTS.get(fault))


_NO_DESCRIPTORS = (23, 24)  # ENFILE, EMFILE (field report 155)
_CONFLICT = 409
_AT_ONCE = (_CONFLICT, 425, 429)  # refused before any work
_UNDECIDED = (408, 499)
_KIND_FAULTS = {
    ErrorKind.RETRYABLE: Fault.RETRY,
    ErrorKind.PERMANENT: Fault.PERMANENT,
    ErrorKind.SYSTEMIC: Fault.SYSTEMIC,
}


def _fault(status: int, error: ItemError | None, call: Call) -> Fault:
    """The fault of an answer, where no words of the provider say more."""
    kind = error.kind if error else None
    if status == 404:  # noqa: PLR2004
        return _not_found(kind, call)
    if kind is not ErrorKind.SYSTEMIC:
        if status == _CONFLICT and call is Call.CREATE:
            return Fault.AMBIGUOUS  # it may conflict with itself: a proxy repeats what it has sent already
        if status in _AT_ONCE:
            return Fault.RETRY
        if status >= 500 or status in _UNDECIDED:  # noqa: PLR2004
            return Fault.AMBIGUOUS if call is Call.CREATE else Fault.RETRY
    if kind is not None and status >= 400:  # noqa: PLR2004
        return _KIND_FAULTS[kind]
    # without an envelope: credentials refused by an edge, or a redirect
    return Fault.PERMANENT if status in (400, 422) else Fault.SYSTEMIC


def _not_found(kind: ErrorKind | None, call: Call) -> Fault:
    """An id we asked about, one item's reference, or else a wrong address or model (field report 45)."""
    if call is Call.READ:
        return Fault.NOT_FOUND
    return Fault.PERMANENT if call is Call.SYNC and kind is ErrorKind.PERMANENT else Fault.SYSTEMIC


def _lost(call: Call) -> Fault:
    """The fault of an answer that did not come, or came unreadable."""
    return Fault.RETRY if call is Call.READ else Fault.AMBIGUOUS


def _request_of(headers: Mapping[str, str]) -> str:
    """The provider's name of a request, which its support asks for."""
    name = headers.get("request-id") or headers.get("x-request-id")
    return f" (request {name[:LONGEST_REQUEST_ID]})" if name else ""


def _outline(body: bytes) -> str:
    """What a body that is no error envelope seems to be; never the body itself where it is a page."""
    start = body.lstrip()[:1]
    if not start:
        return "an empty body"
    if start == b"<":
        title = _TITLE.search(body)
        return f"a web page ({title[1].decode('utf-8', 'replace').strip()})" if title else "a web page"
    return body[:80].decode("utf-8", "replace")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An exception and what it came from, outermost first."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def own_error(error: BaseException) -> BatchctlError | None:
    """The failure to read our own request lines, where that is what a call failed of; the transport wraps it."""
    return next(
        (
            cause
            for cause in _causes(error)
            if isinstance(cause, BatchctlError) and not isinstance(cause, ProviderError)
        ),
        None,
    )


def _is_transport(error: Exception) -> bool:
    """Whether an exception comes from the connection; bodies being streamed raise these bare."""
    import aiohttp
    import httpx2

    return isinstance(
        error, httpx2.HTTPError | httpx2.StreamError | httpx2.InvalidURL | aiohttp.ClientError | OSError | TimeoutError
    )


def _never_connected(causes: list[BaseException]) -> bool:
    """Whether no byte can have arrived.

    Only aiohttp's own classes tell: the SDKs' transports turn a connection cut after the request was sent into
    `ConnectError` (anthropic) or `ConnectTimeout` (openai).
    """
    import aiohttp

    return any(
        isinstance(cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.ClientHttpProxyError)
        for cause in causes
    )


def _misaddressed(causes: list[BaseException]) -> bool:
    """Whether the address itself is wrong."""
    import aiohttp
    import httpx2

    return any(
        isinstance(
            cause, httpx2.UnsupportedProtocol | httpx2.InvalidURL | aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError
        )
        for cause in causes
    )
