"""OpenAI's file endpoints: upload as multipart, list, retrieve, content, delete (OpenAI API reference, files)."""

from __future__ import annotations

from typing import Any

from aiohttp import BodyPartReader, web

from batchctl.simulator.blobs import BlobWriter
from batchctl.simulator.errors import ApiError
from batchctl.simulator.files import RETENTION, Files, StoredFile
from batchctl.simulator.http import Download, Reply, json_reply, page_size, too_large
from batchctl.simulator.rendering import Renderer
from batchctl.simulator.services import Services, new_id
from batchctl.simulator.visibility import Sightings, hidden_from_list

_SHORTEST, _LONGEST = 3_600, 2_592_000
_CHUNK = 1 << 18


class OpenAiFilesApi:
    """Handlers of the file endpoints."""

    def __init__(self, services: Services, files: Files, renderer: Renderer) -> None:
        self._services = services
        self._files = files
        self._renderer = renderer
        self._sightings: Sightings = Sightings()

    async def upload(self, request: web.Request) -> Reply:
        """Take in a batch input file, streamed."""
        services = self._services
        file_id = new_id("file-")
        sink = services.blobs.writer(file_id)
        try:
            fields, filename = await self._read_form(request, sink)
            lifetime = _check_form(fields, filename)
        except ValueError as error:
            sink.discard()
            raise ApiError(400, f"Could not parse multipart form: {error}") from None
        except (ApiError, ConnectionError):
            sink.discard()
            raise
        sink.commit()
        now = services.clock.now()
        effects = services.faults.for_file()
        file = StoredFile(
            id=file_id,
            filename=filename,
            purpose=fields["purpose"],
            created_at=now,
            expires_at=None if effects.get("ignore_expiry") else now + lifetime,
            blob=file_id,
            size=sink.size,
            effects=effects,
        )
        self._files.add_upload(file)
        return json_reply(self._public(file))

    async def list(self, request: web.Request) -> Reply:
        """List files by purpose, in either order, after a cursor."""
        size = page_size(request, 10_000, 10_000)
        now = self._services.clock.now()
        purpose = request.query.get("purpose")
        files = [
            file
            for file in self._files.oldest_first()
            if purpose in (None, file.purpose) and not hidden_from_list(file, self._sightings, now)
        ]
        if request.query.get("order", "desc") == "desc":
            files.reverse()
        start = 0
        if after := request.query.get("after"):
            ids = [file.id for file in files]
            if after not in ids:
                raise _not_found(after)
            start = ids.index(after) + 1
        page = files[start : start + size]
        for file in page:
            await self._ensure_size(file)
        return json_reply(
            {
                "object": "list",
                "data": [self._public(file) for file in page],
                "first_id": page[0].id if page else None,
                "last_id": page[-1].id if page else None,
                "has_more": len(files) > start + size,
            }
        )

    async def retrieve(self, request: web.Request) -> Reply:
        """Show a file."""
        file = self._find(request)
        await self._ensure_size(file)
        shown = self._public(file)
        if self._sightings[file.id, "pending"] < file.effects.get("pending_retrieves", 0):
            self._sightings[file.id, "pending"] += 1
            shown["status"] = "pending"
        return json_reply(shown)

    async def content(self, request: web.Request) -> Download:
        """Stream the bytes of a file."""
        file = self._find(request)
        await self._ensure_size(file)
        return Download(file.blob, "application/octet-stream")

    async def delete(self, request: web.Request) -> Reply:
        """Delete a file."""
        file = self._find(request)
        self._files.delete(file, self._services.clock.now())
        return json_reply({"id": file.id, "object": "file", "deleted": True})

    async def _read_form(self, request: web.Request, sink: BlobWriter) -> tuple[dict[str, str], str]:
        if not request.content_type.startswith("multipart/"):
            raise ApiError(400, "Expected multipart/form-data.")
        fields: dict[str, str] = {}
        filename = ""
        most = self._services.config.openai_max_bytes
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader):
                continue
            if part.name != "file":
                fields[part.name or ""] = await part.text()
                continue
            filename = part.filename or ""
            while chunk := await part.read_chunk(_CHUNK):
                sink.write(bytes(chunk))
                if sink.size > most:
                    raise too_large()
        return fields, filename

    async def _ensure_size(self, file: StoredFile) -> None:
        if file.batch is not None and file.size is None:
            await self._renderer.ensure(file.batch)
            file.size = self._services.blobs.size(file.blob)

    def _public(self, file: StoredFile) -> dict[str, Any]:
        return file.public()

    def _find(self, request: web.Request) -> StoredFile:
        file = self._files.get(request.match_info["file_id"])
        if file is None:
            raise _not_found(request.match_info["file_id"])
        return file


def _check_form(fields: dict[str, str], filename: str) -> int:
    """Check an upload for the batch purpose and give its lifetime in seconds."""
    if not filename:
        raise ApiError(400, "'file' is a required property", param="file")
    if fields.get("purpose") != "batch":
        raise ApiError(400, f"'{fields.get('purpose')}' is not one of ['batch'] - 'purpose'", param="purpose")
    if not filename.endswith(".jsonl"):
        raise ApiError(400, "Invalid file format for Batch API. Must be .jsonl")
    lifetime = fields.get("expires_after[seconds]", str(RETENTION))
    if not lifetime.isdigit() or not _SHORTEST <= int(lifetime) <= _LONGEST:
        raise ApiError(400, f"Invalid 'expires_after[seconds]': {lifetime}.", param="expires_after[seconds]")
    return int(lifetime)


def _not_found(file_id: str) -> ApiError:
    return ApiError(404, f"No such File object: {file_id}", param="id")
