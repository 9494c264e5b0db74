"""One SDK client, built when it is first needed, and the calls both adapters make with it; no call is ever repeated."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from batchctl.providers.decoding import decode
from batchctl.providers.errors import Call, ErrorReader, SdkErrors, own_error
from batchctl.providers.headers import server_time

T = TypeVar("T")

CONNECT_TIMEOUT = 15.0  # seconds
READ_TIMEOUT = 60.0  # seconds for a short answer, and between two pieces of a download
SEND_RATE = 1_000_000  # bytes a second a slow uplink must reach
CHUNK = 256 * 1024
PORTS = {"http": 80, "https": 443}


@cache
def trusted() -> ssl.SSLContext:
    """The certificates the SDKs trust, for every connection of both lanes; reading them takes 50 ms."""
    import httpx2

    return httpx2.create_ssl_context()


def send_timeout(size: int) -> float:
    """Seconds to send and have accepted a body of `size` bytes (field report 54)."""
    return READ_TIMEOUT + size / SEND_RATE


@dataclass(frozen=True, slots=True)
class Reply:
    """A 2xx answer, whole."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def server_time(self) -> datetime | None:
        """The provider's clock at the answer."""
        return server_time(self.headers)


class Sdk:
    """Calls through one SDK's async client.

    Args:
        build: makes the client; imports the SDK.
        exceptions: gives the SDK's exception classes; imports the SDK.
        errors: reads what goes wrong.
    """

    def __init__(self, build: Callable[[], Any], exceptions: Callable[[], SdkErrors], errors: ErrorReader) -> None:
        self._build = build
        self._exceptions = exceptions
        self._client: Any = None
        self.errors = errors

    @property
    def client(self) -> Any:
        """The SDK's client, built at the first use."""
        if self._client is None:
            self._client = self._build()
        return self._client

    async def aclose(self) -> None:
        """Close the client's connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    @asynccontextmanager
    async def mapped(self, call: Call, *, total: float | None = None) -> AsyncIterator[None]:
        """Raise what goes wrong inside as a ProviderError; `total` seconds is all it may take."""
        limit = asyncio.timeout(total)
        try:
            async with limit:
                yield
        except Exception as error:
            late = limit.expired()  # the cause of that is a cancel, which says nothing
            failure = TimeoutError(f"after {total:g} s") if late else error
            ours = own_error(failure)
            if ours is not None:
                raise ours from None
            read = self.errors.of_exception(failure, call, self._exceptions())
            if read is None:
                raise
            raise read from None  # the cause may hold headers

    async def call(
        self,
        method: str,
        path: str,
        call: Call,
        *,
        timeout: float = READ_TIMEOUT,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        **body: Any,
    ) -> Reply:
        """One HTTP call.

        Args:
            method: get, post or delete.
            path: relative to the client's base URL.
            call: what it does, for the fault of its failure.
            timeout: seconds it may take in all.
            headers: beside the SDK's own.
            params: of the query.
            body: `content=` raw bytes or an iterator of them, or `body=` JSON, as the SDK's client takes it.

        Raises:
            ProviderError: classified.
        """
        import httpx2

        options: dict[str, Any] = {"timeout": httpx2.Timeout(timeout, connect=CONNECT_TIMEOUT), "max_retries": 0}
        if headers:
            options["headers"] = headers
        if params:
            options["params"] = params
        async with self.mapped(call, total=timeout + CONNECT_TIMEOUT):
            response = await getattr(self.client, method)(path, cast_to=httpx2.Response, options=options, **body)
            return Reply(response.headers, response.content)

    async def stream(self, url: str, *, follow_redirects: bool = False) -> AsyncGenerator[bytes, None]:
        """The body of a GET as it comes, in constant memory; always ends with a newline.

        Raises:
            ProviderError: RETRY where the body ends before its announced length.
        """
        import httpx2

        options = {
            "timeout": httpx2.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT),
            "max_retries": 0,
            "headers": {"Accept": "application/binary"},
            "follow_redirects": follow_redirects,
        }
        async with self.mapped(Call.READ):
            response = await self.client.get(
                url, cast_to=httpx2.Response, options=options, stream=True, stream_cls=_NoStream
            )
        last = b"\n"
        try:
            async with self.mapped(Call.READ):
                async for chunk in response.aiter_bytes(CHUNK):
                    last = chunk[-1:]
                    yield chunk
        finally:
            await response.aclose()  # also when the reader gives up (field report 105)
        if last != b"\n":
            yield b"\n"

    def read(self, decoder: msgspec.json.Decoder[T], raw: bytes, call: Call) -> T:
        """The object in an answer's body, or in a part of it.

        Raises:
            ProviderError: it says nothing usable.
        """
        try:
            return decode(decoder, raw)
        except ValueError as error:
            raise self.errors.unreadable(str(error), call) from None


class _Id(msgspec.Struct):
    custom_id: str | None = None


_ID = msgspec.json.Decoder(_Id)


def address_of(base_url: Any, **scopes: str | None) -> str:
    """A base URL without its query, and the parts of an account (by name) that headers ask for."""
    url = urlsplit(str(base_url))
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname or ""
    port = "" if url.port in (None, PORTS.get(url.scheme)) else f":{url.port}"
    named = [f"{name} {value}" for name, value in scopes.items() if value]
    return ", ".join([f"{url.scheme}://{host}{port}{url.path.rstrip('/')}", *named])


def custom_id_of(line: bytes) -> str | None:
    """The custom id of a request or result line, None where it has none."""
    try:
        return _ID.decode(line).custom_id
    except msgspec.DecodeError:
        return None


async def ids_of(stream: AsyncGenerator[bytes, None]) -> AsyncGenerator[str, None]:
    """The custom ids of the lines in a stream, which is closed however reading ends."""
    tail = b""
    async with aclosing(stream):
        async for chunk in stream:
            *lines, tail = (tail + chunk).split(b"\n")
            for line in lines:
                if id_ := custom_id_of(line):
                    yield id_


class _NoStream:
    """Stands where the SDK asks for an event-stream class; a raw response never uses it."""


async def json_array(lines: IO[bytes], start: bytes, end: bytes) -> AsyncIterator[bytes]:
    """Request lines as one JSON array inside `start` and `end`: a comma for each newline but the last."""
    held = start
    with lines:
        while chunk := lines.read(CHUNK):
            yield held + chunk[:-1].replace(b"\n", b",")
            held = chunk[-1:].replace(b"\n", b",")
    yield end
