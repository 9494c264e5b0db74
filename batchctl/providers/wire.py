"""The sync lane's HTTP: bodies as they are over one aiohttp session; the SDK's client gives address and headers.

The SDKs' own clients reach a fifth of this rate, and build objects out of answers that one Struct reads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from batchctl.core.model import Answer
from batchctl.providers.base import Completion, RateHeaders
from batchctl.providers.errors import Call, ErrorReader
from batchctl.providers.sdk import CONNECT_TIMEOUT, trusted

if TYPE_CHECKING:
    import aiohttp

_OK = 200


class Wire:
    """Posts request bodies; one HTTP call each, no retries.

    Args:
        errors: reads what goes wrong.
        parse: reads a 200 body, given the custom id.
        rates: reads the rate-limit headers, given the time in Unix seconds.
        target: gives the base URL and the headers to send; values that are no text are left out.
    """

    def __init__(
        self,
        errors: ErrorReader,
        parse: Callable[[str, bytes], Answer],
        rates: Callable[[Mapping[str, str], float], RateHeaders],
        target: Callable[[], tuple[str, Mapping[str, object]]],
    ) -> None:
        self._errors = errors
        self._parse = parse
        self._rates = rates
        self._target = target
        self._session: aiohttp.ClientSession | None = None
        self._base_url = ""

    async def complete(self, custom_id: str, endpoint: str, body: bytes, *, timeout: float) -> Completion:
        """Send one request body and wait for the answer.

        Args:
            custom_id: the id the answer gets.
            endpoint: path below the base URL's host.
            body: sent as it is.
            timeout: seconds for all of it, so that a trickling answer cannot hold it (field report 159).

        Raises:
            ProviderError: classified; AMBIGUOUS where the request may have been worked on.
        """
        session = self._session or self._open()
        try:
            async with (
                asyncio.timeout(timeout),
                session.post(self._base_url + endpoint, data=body, allow_redirects=False) as response,
            ):
                raw = await response.read()
        except Exception as error:
            read = self._errors.of_exception(error, Call.SYNC)
            if read is None:
                raise
            raise read from None  # the cause may hold headers
        if response.status != _OK:
            raise self._errors.of_answer(response.status, response.headers, raw, Call.SYNC)
        try:
            answer = self._parse(custom_id, raw)
        except ValueError as error:
            raise self._errors.unreadable(str(error), Call.SYNC) from None
        return Completion(answer, self._rates(response.headers, time.time()))

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        base_url, headers = self._target()
        self._base_url = base_url.rstrip("/").removesuffix("/v1")  # endpoints carry it
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=trusted()),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
            trust_env=True,
            headers={name: value for name, value in headers.items() if isinstance(value, str)}
            | {"Content-Type": "application/json"},
        )
        return self._session

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None
