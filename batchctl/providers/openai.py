"""OpenAI: Files, Batches and the ordinary endpoints through its SDK. Nothing is retried, no file is held in memory."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import IO, Any
from urllib.parse import quote

from batchctl.core.errors import Fault, ProviderError
from batchctl.core.fingerprint import key_hint
from batchctl.core.words import counted
from batchctl.providers.addresses import check_address
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
from batchctl.providers.errors import OPENAI_MARKS, Call, ErrorReader, SdkErrors
from batchctl.providers.headers import openai_rates
from batchctl.providers.keys import find_key
from batchctl.providers.listing import ListQuery, read_list
from batchctl.providers.loading import loading
from batchctl.providers.openai_format import LIMITS
from batchctl.providers.openai_objects import BATCH, FILE, METADATA_KEY, Batch, File
from batchctl.providers.openai_results import parse_completion, parse_error
from batchctl.providers.sdk import Sdk, address_of, ids_of, send_timeout, trusted
from batchctl.providers.targets import openai_target
from batchctl.providers.wire import Wire

WINDOW = "24h"  # the only one there is
_BATCHES = ListQuery("/batches", BATCH, {"limit": 100}, "after")
_FILES = ListQuery("/files", FILE, {"purpose": "batch", "order": "desc", "limit": 1000}, "after")
EXPIRY = {"anchor": "created_at", "seconds": 30 * 86_400}
"""Of an input file: the longest every server of this API allows, since a full queue may keep it waiting."""
STAYS = "has no expiry, so it stays until it is deleted"


class OpenAIProvider:
    """Both lanes of OpenAI and of servers that speak its API.

    Args:
        base_url: where to send, with `/v1`; None leaves it to OPENAI_BASE_URL.
        api_key: None takes it from OPENAI_API_KEY.

    Raises:
        InputError: there is no key, or the address is none that may be used.
    """

    name = "openai"

    def __init__(self, *, base_url: str | None = None, api_key: str | None = None) -> None:
        check_address(self.name, base_url)
        key = find_key(self.name, api_key)
        self._hint = partial(key_hint, key)
        self._expiry: Mapping[str, Any] | None = EXPIRY
        self._errors = ErrorReader(self.name, parse_error, OPENAI_MARKS, (key,))
        self._sdk = Sdk(partial(_client, base_url, key), _exceptions, self._errors)
        self._wire = Wire(self._errors, parse_completion, openai_rates, partial(openai_target, base_url, key))

    def limits(self) -> BatchLimits:
        """OpenAI's limits on one batch."""
        return LIMITS

    async def account(self, salt: str) -> Account:
        """The address and key in use, with the organization and project of the SDK's own variables."""
        async with self._sdk.mapped(Call.READ):
            client = self._sdk.client
            address = address_of(client.base_url, organization=client.organization, project=client.project)
        return Account(address, self._hint(salt))

    async def submit(self, submission: Submission, uploaded: Callable[[str], None]) -> Created:
        """Upload the request lines, unless an earlier try did, and create the batch with one call."""
        file_id = submission.file_id
        warnings: tuple[str, ...] = ()
        if file_id is None:
            file = await self._upload_expiring(submission)
            file_id = file.id
            uploaded(file_id)
            warnings = () if file.expires_at else (f"input file {file_id} {STAYS}",)
        reply = await self._sdk.call(
            "post",
            "/batches",
            Call.CREATE,
            headers=submission.headers,
            body={
                "input_file_id": file_id,
                "endpoint": submission.endpoint,
                "completion_window": WINDOW,
                "metadata": {METADATA_KEY: submission.key},
            },
        )
        return replace(self._sdk.read(BATCH, reply.body, Call.CREATE).created(), warnings=warnings)

    async def _upload_expiring(self, submission: Submission) -> File:
        """Upload with an expiry, or without where this server refuses to be asked for one (field reports 61, 62)."""
        if self._expiry:
            try:
                return await self._upload(submission, expires_after=self._expiry)
            except ProviderError as error:
                if error.fault is not Fault.PERMANENT or "expires_after" not in error.message:
                    raise
                self._expiry = None
        return await self._upload(submission)

    async def _upload(self, submission: Submission, **form: Any) -> File:
        timeout = send_timeout(submission.size)
        with _Lines(submission.open_lines(), submission.size) as lines:
            reply = await self._sdk.call(
                "post",
                "/files",
                Call.CREATE,
                timeout=timeout,
                headers={"Content-Type": "multipart/form-data"},
                body={"purpose": "batch", **form},
                files={"file": (_filename(submission), lines, "application/jsonl")},
            )
        return self._sdk.read(FILE, reply.body, Call.CREATE)

    async def check(self, batch_id: str) -> BatchCheck:
        """Ask how a batch stands."""
        reply = await self._sdk.call("get", f"/batches/{_escaped(batch_id)}", Call.READ)
        batch = self._sdk.read(BATCH, reply.body, Call.READ)
        self._errors.refuse_other(batch.id, batch_id)
        return batch.check(reply.server_time)

    async def results(self, check: BatchCheck) -> AsyncIterator[bytes]:
        """The lines of the output file, then those of the error file, in chunks."""
        for file_id in check.outputs:
            async for chunk in self._sdk.stream(f"/files/{_escaped(file_id)}/content", follow_redirects=True):
                yield chunk

    async def cancel(self, batch_id: str) -> None:
        """Ask for a batch to be canceled; one that has ended already is no error."""
        try:
            await self._sdk.call("post", f"/batches/{_escaped(batch_id)}/cancel", Call.READ)
        except ProviderError as error:
            if error.fault is Fault.NOT_FOUND or (await self.check(batch_id)).phase is Phase.IN_PROGRESS:
                raise

    async def fence(self) -> None:
        """None: a batch carries its key."""

    async def find(self, submission: Submission, ledger: AbstractSet[str]) -> Found | Absent | Unknown:  # noqa: ARG002
        """Look for the batch of an intent by its key, then for its uploaded file by name and size.

        A kept file can serve several tries, so it tells only where a batch carries no key at all.
        """
        batches = await self._batches(submission.intent_at)
        found = next((batch for batch in batches if batch.key() == submission.key), None)
        if found is not None:
            return Found(found.created(), certain=True, evidence="by its key")
        file_id = await self._uploaded(submission)
        keyless = [batch for batch in batches if batch.key() is None]
        files = {submission.file_id, file_id} - {None}
        made = [batch for batch in keyless if batch.input_file_id in files]
        if made:
            return Found(made[0].created(), certain=True, evidence="by its input file")
        if mute := [batch.id for batch in keyless if batch.input_file_id is None]:
            return Unknown(tuple(mute), f"{counted(len(mute), 'batch')} listed without key and input file could be it")
        return Absent(file_id)

    async def listed(self, since: datetime) -> AsyncIterator[Listed]:
        """All batches of the account created since then, newest first."""
        for batch in await self._batches(since):
            yield batch.listed()

    async def custom_ids(self, batch: Listed) -> AsyncIterator[str]:
        """The custom ids in the input file of a listed batch or, where that is gone, in its result files."""
        for places in ((batch.ids_at or "",), batch.outputs):
            found = False
            for file_id in places:
                try:
                    async for id_ in ids_of(self._sdk.stream(f"/files/{_escaped(file_id)}/content")):
                        found = True
                        yield id_
                except ProviderError as error:
                    if error.fault is not Fault.NOT_FOUND:
                        raise
            if found:
                return

    async def uploads(self, since: datetime) -> AsyncIterator[tuple[str, str]]:
        """Uploaded input files since then as (file id, intent key)."""
        for file in await self._files(since):
            yield file.id, (file.filename or "").removesuffix(".jsonl")

    async def discard(self, file_id: str) -> None:
        """Delete an uploaded input file; one that is gone already is no error."""
        try:
            await self._sdk.call("delete", f"/files/{_escaped(file_id)}", Call.READ)
        except ProviderError as error:
            if error.fault is not Fault.NOT_FOUND:
                raise

    def complete(
        self, custom_id: str, endpoint: str, body: bytes, *, timeout: float, headers: Mapping[str, str] | None = None
    ) -> Awaitable[Completion]:
        """Send one request body as it is and wait for the answer."""
        return self._wire.complete(custom_id, endpoint, body, timeout=timeout, headers=headers)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._wire.aclose()
        await self._sdk.aclose()

    async def _batches(self, since: datetime) -> list[Batch]:
        """Batches created since then, or that may have been, where the clock was wrong."""
        return [entry.value for entry in await read_list(self._sdk, _BATCHES, since)]

    async def _files(self, since: datetime) -> list[File]:
        """Input files uploaded since then, likewise."""
        return [entry.value for entry in await read_list(self._sdk, _FILES, since)]

    async def _uploaded(self, submission: Submission) -> str | None:
        """The id of the intent's input file, if an upload of it arrived whole."""
        try:
            for file in await self._files(submission.intent_at):
                if file.filename == _filename(submission) and file.bytes in (None, submission.size):
                    return file.id
        except ProviderError as error:
            if error.fault is Fault.SYSTEMIC:
                raise
        return None  # also where this server lists no files: the list of batches has decided, the file only saves time


class _Lines(io.RawIOBase):
    """Request lines as the SDK's upload wants a file: of known length, without a descriptor that tells another one."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        super().__init__()
        self._stream = stream
        self._size = size

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        return self._stream.read(size)

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence == io.SEEK_END:
            return self._size + offset  # asked for the length only
        return self._stream.seek(offset, whence)

    def close(self) -> None:
        self._stream.close()
        super().close()


def _filename(submission: Submission) -> str:
    return f"{submission.key}.jsonl"


def _escaped(id_: str) -> str:
    return quote(id_, safe="")


def _client(base_url: str | None, api_key: str) -> Any:
    with loading():
        from openai import AsyncOpenAI, DefaultAioHttpClient

    # a redirect would send the key and the body where nobody asked for
    return AsyncOpenAI(
        base_url=base_url,
        api_key=api_key,
        max_retries=0,
        http_client=DefaultAioHttpClient(verify=trusted(), follow_redirects=False),
    )


def _exceptions() -> SdkErrors:
    import openai

    return SdkErrors(
        status=openai.APIStatusError,
        connection=openai.APIConnectionError,
        unreadable=openai.APIResponseValidationError,
        base=openai.OpenAIError,
    )
