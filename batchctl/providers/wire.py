"""The sync lane's HTTP: bodies as they are over one aiohttp session.

The SDKs' own clients reach a fifth of this rate, and build objects out of answers that one Struct reads.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from batchctl.core.model import Answer
from batchctl.providers.base import Completion, RateHeaders
from batchctl.providers.deadlines import Deadlines
from batchctl.providers.errors import Call, ErrorReader
from batchctl.providers.sdk import CONNECT_TIMEOUT, trusted

if TYPE_CHECKING:
    import aiohttp

LOOK_EVERY = 0.1  # seconds between two looks at the rate-limit headers
LONGEST_BODY = 64_000_000  # bytes
_OK = 200


def proxy_of(base_url: str) -> dict[str, Any]:
    """The environment's proxy for an address, as arguments of a request.

    Read once: aiohttp's own `trust_env` asks again for every request, in a thread, and halves the rate.
    """
    scheme, _, rest = base_url.partition("://")
    host = urlsplit(f"//{rest}").netloc
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or proxy_bypass(host):
        return {}
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    user, at, place = parts.netloc.rpartition("@")
    arguments: dict[str, Any] = {"proxy": f"{parts.scheme}://{place}"}
    if at:
        token = b64encode(unquote(user).encode()).decode()
        arguments["proxy_headers"] = {"Proxy-Authorization": f"Basic {token}"}
    return arguments


class Wire:
    """Posts request bodies; one HTTP call each, no retries.

    Args:
        errors: reads what goes wrong.
        parse: reads a 200 body, given the custom id.
        rates: reads the rate-limit headers.
        target: gives the base URL and the headers to send.
    """

    def __init__(
        self,
        errors: ErrorReader,
        parse: Callable[[str, bytes], Answer],
        rates: Callable[[Mapping[str, str]], RateHeaders],
        target: Callable[[], tuple[str, Mapping[str, str]]],
    ) -> None:
        self._errors = errors
        self._parse = parse
        self._rates = rates
        self._target = target
        self._session: aiohttp.ClientSession | None = None
        self._base_url = ""
        self._look_again = float("-inf")
        self._deadlines = Deadlines()
        self._proxy: dict[str, Any] = {}

    async def complete(
        self, custom_id: str, endpoint: str, body: bytes, *, timeout: float, headers: Mapping[str, str] | None = None
    ) -> Completion:
        """Send one request body and wait for the answer.

        Args:
            custom_id: the id the answer gets.
            endpoint: path below the base URL's host.
            body: sent as it is.
            headers: beside the client's own.
            timeout: seconds for all of it, so that a trickling answer cannot hold it (field report 159).

        Raises:
            ProviderError: classified; AMBIGUOUS where the request may have been worked on.
        """
        session = self._session or self._open()
        deadline = self._deadlines.start(timeout)
        try:
            response = await session.post(
                self._base_url + endpoint, data=body, headers=headers, allow_redirects=False, **self._proxy
            )
            raw = await self._body(response)
        except asyncio.CancelledError:
            if not deadline.passed:
                raise
            raise self._errors.timed_out(timeout) from None
        except Exception as error:
            read = self._errors.of_exception(error, Call.SYNC)
            if read is None:
                raise
            raise read from None  # the cause may hold headers
        finally:
            self._deadlines.stop(deadline)
        if response.status != _OK:
            raise self._errors.of_answer(response.status, response.headers, raw, Call.SYNC)
        try:
            answer = self._parse(custom_id, raw)
        except ValueError as error:
            raise self._errors.unreadable(str(error), Call.SYNC) from None
        return Completion(answer, self._rate(response.headers))

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        """All of a body, up to a length that no answer has; reading it gives the connection back, or closes it.

        Raises:
            ProviderError: it is longer, which costs the memory of that much and no more.
        """
        told = response.content_length
        if told is not None and told <= LONGEST_BODY and "Content-Encoding" not in response.headers:
            return await response.read()
        raw = bytearray()
        async for chunk in response.content.iter_any():
            raw += chunk
            if len(raw) > LONGEST_BODY:
                response.close()
                raise self._errors.too_long(LONGEST_BODY)
        return bytes(raw)

    def _rate(self, headers: Mapping[str, str]) -> RateHeaders | None:
        """What an answer says of the limits, looked at once in a while: reading them takes as long as the answer."""
        now = time.monotonic()
        if now < self._look_again:
            return None
        self._look_again = now + LOOK_EVERY
        return self._rates(headers)

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        base_url, headers = self._target()
        self._base_url = base_url.rstrip("/").removesuffix("/v1")  # endpoints carry it
        self._proxy = proxy_of(base_url)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=trusted()),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
            headers=headers,
        )
        return self._session

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            self._deadlines.close()
            await self._session.close()
            self._session = None
