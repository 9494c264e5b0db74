"""OpenAI's endpoints: files, batches, chat completions, responses, embeddings, models (OpenAI API reference)."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from batchctl.simulator.batch import CANCELING, ENDED, FINALIZING, VALIDATING, Batch
from batchctl.simulator.batches import Batches
from batchctl.simulator.errors import OPENAI, ApiError
from batchctl.simulator.files import Files, has_errors, has_output, result_file_id
from batchctl.simulator.http import Reply, json_reply, page_size, parse_object, read_body
from batchctl.simulator.intake import Intake, read_input_file
from batchctl.simulator.kinds import CODE
from batchctl.simulator.openai_shapes import BATCH_ENDPOINTS, RESPONSES, read_prompt
from batchctl.simulator.services import Services, new_id
from batchctl.simulator.sync_lane import SyncLane
from batchctl.simulator.visibility import Sightings, hidden_from_list, hidden_from_retrieve

_BODY_BYTES = 64_000_000
_IN_A_THREAD = 1_000_000
_MOST_PAIRS, _KEY_LENGTH, _VALUE_LENGTH = 16, 64, 512


class OpenAiApi:
    """Handlers of batches and synchronous calls; files have their own module."""

    def __init__(self, services: Services, batches: Batches, files: Files, sync: SyncLane) -> None:
        self._services = services
        self._batches = batches
        self._files = files
        self._sync = sync
        self._refusals: Sightings = Sightings()

    async def answer(self, request: web.Request) -> Reply:
        """Answer a chat completion, a response or an embedding."""
        return await self._sync.openai(await read_body(request, _BODY_BYTES), request.path)

    async def input_tokens(self, request: web.Request) -> Reply:
        """Count the input tokens of a response."""
        body = parse_object(await read_body(request, _BODY_BYTES))
        return json_reply({"object": "response.input_tokens", "input_tokens": read_prompt(body, RESPONSES).tokens})

    async def create(self, request: web.Request) -> Reply:
        """Create a batch; what is wrong with its file shows later, as status `failed`."""
        services = self._services
        body = parse_object(await read_body(request, _BODY_BYTES))
        _check_create(body)
        file = self._files.get(body["input_file_id"])
        if file and self._refusals[file.id, "create"] < file.effects.get("not_found_creates", 0):
            self._refusals[file.id, "create"] += 1
            raise ApiError(400, f"File {file.id} could not be found.", param="file_id")
        intake = Intake()
        if file is None:
            message = f"The input file {body['input_file_id']} was not found."
            intake.errors = [{"code": "invalid_request", "line": None, "message": message, "param": "input_file_id"}]
        else:
            arguments = (services.blobs, file.blob, body["endpoint"], services.config)
            large = (file.size or 0) > _IN_A_THREAD
            intake = await asyncio.to_thread(read_input_file, *arguments) if large else read_input_file(*arguments)
        effects = services.faults.for_batch(OPENAI, len(intake.items))
        batch = self._batches.create(
            new_id("batch_"),
            OPENAI,
            intake.items,
            bytes(intake.rejected),
            effects,
            blob=file.blob if file else "",
            endpoint=body["endpoint"],
            metadata=body.get("metadata"),
            input_file_id=body["input_file_id"],
            errors=intake.errors or _ordered_failure(effects, intake.items.model),
            output_expires=(body.get("output_expires_after") or {}).get("seconds"),
        )
        return json_reply(self._public(batch))

    async def retrieve(self, request: web.Request) -> Reply:
        """Show a batch."""
        batch = self._find(request)
        if hidden_from_retrieve(batch, self._batches.sightings, self._services.clock.now()):
            raise _not_found(batch.id)
        return json_reply(self._public(batch))

    async def list(self, request: web.Request) -> Reply:
        """List batches, newest first, after a cursor."""
        now = self._services.clock.now()
        size = page_size(request, 20, 100)
        sightings = self._batches.sightings
        batches = [batch for batch in self._batches.newest_first(OPENAI) if not hidden_from_list(batch, sightings, now)]
        start = 0
        if after := request.query.get("after"):
            ids = [batch.id for batch in batches]
            if after not in ids:
                raise _not_found(after)
            start = ids.index(after) + 1
        page = batches[start : start + size]
        return json_reply(
            {
                "object": "list",
                "data": [self._public(batch) for batch in page],
                "first_id": page[0].id if page else None,
                "last_id": page[-1].id if page else None,
                "has_more": len(batches) > start + size,
            }
        )

    async def cancel(self, request: web.Request) -> Reply:
        """Ask a batch to stop."""
        batch = self._find(request)
        if batch.phase == ENDED:
            raise ApiError(409, f"Cannot cancel a batch with status '{_status(batch)}'.")
        self._batches.cancel(batch, self._services.clock.now())
        return json_reply(self._public(batch))

    def _find(self, request: web.Request) -> Batch:
        batch = self._batches.get(request.match_info["batch_id"], OPENAI)
        if batch is None:
            raise _not_found(request.match_info["batch_id"])
        return batch

    def _public(self, batch: Batch) -> dict[str, Any]:
        """Give the batch object (openai types/batch.py)."""
        status = _status(batch)
        ended = batch.phase == ENDED
        stamp: dict[str, int | None] = dict.fromkeys(("failed", "completed", "expired", "cancelled"))
        started = batch.phase != VALIDATING and batch.ending != "failed"
        finalizing = batch.phase == FINALIZING or batch.ending == "completed"
        shown: dict[str, Any] = {
            "id": batch.id,
            "object": "batch",
            "endpoint": batch.endpoint,
            "model": batch.items.model or None,
            "errors": {"object": "list", "data": batch.errors} if batch.ending == "failed" else None,
            "input_file_id": batch.input_file_id,
            "completion_window": "24h",
            "status": batch.effects.get("status", status) if status == "in_progress" else status,
            "output_file_id": result_file_id(batch, "output") if ended and has_output(batch) else None,
            "error_file_id": result_file_id(batch, "error") if ended and has_errors(batch) else None,
            "created_at": int(batch.created_at),
            "in_progress_at": int(batch.start_at) if started else None,
            "expires_at": int(batch.expires_at),
            "finalizing_at": int(batch.finish_at) if finalizing else None,
            "cancelling_at": None if batch.cancel_at is None else int(batch.cancel_at),
            "request_counts": self._counts(batch),
            "metadata": batch.metadata,
        }
        if ended and batch.ended_at is not None:
            stamp[status] = int(batch.ended_at)
        shown |= {f"{name}_at": at for name, at in stamp.items()}
        return _with_odd_ids(shown, batch) if ended else shown

    def _counts(self, batch: Batch) -> dict[str, int] | None:
        """Count the work live; all 0 while validating."""
        if "counts" in batch.effects and batch.effects["counts"] is None:
            return None
        if batch.phase == VALIDATING:
            return {"total": 0, "completed": 0, "failed": 0}
        total = len(batch.items)
        if batch.ending == "failed":
            return {"total": total, "completed": 0, "failed": 0}
        now = self._services.clock.now()
        tally = batch.tally(now)
        # Lines with status 0 count as completed, and lost lines do too (community reports of 2025).
        quiet = batch.kind_codes(batch.progress(now)).count(CODE["status_0"])
        completed = tally["succeeded"] + tally["missing"] + quiet
        failed = tally["errored"] - quiet + tally["expired"]
        if batch.ending == "expired":
            failed += tally["not_run"]
        if batch.effects.get("counts") == "all_completed":
            completed, failed = completed + failed, 0
        return {"total": total, "completed": completed, "failed": failed}


def _status(batch: Batch) -> str:
    if batch.phase == ENDED:
        return "cancelled" if batch.ending == "canceled" else batch.ending
    return {VALIDATING: "validating", FINALIZING: "finalizing", CANCELING: "cancelling"}.get(batch.phase, "in_progress")


def _with_odd_ids(shown: dict[str, Any], batch: Batch) -> dict[str, Any]:
    """Replace file ids as a fault asks: empty, missing or null."""
    for name in ("error_file_id", "output_file_id"):
        odd = batch.effects.get(name)
        if odd == "missing":
            del shown[name]
        elif odd == "null":
            shown[name] = None
        elif odd == "" and shown[name] is None:
            shown[name] = ""
    return shown


def _ordered_failure(effects: dict[str, Any], model: str) -> list[dict[str, Any]]:
    fail = effects.get("fail")
    if fail is None:
        return []
    if isinstance(fail, list):
        return [{"code": None, "line": None, "message": None, "param": None} | error for error in fail]
    message = f"Enqueued token limit reached for {model}. Limit: 90,000 enqueued tokens." if "token" in fail else fail
    return [{"code": fail, "line": None, "message": message, "param": None}]


def _check_create(body: dict[str, Any]) -> None:
    for name in ("input_file_id", "endpoint", "completion_window"):
        if not isinstance(body.get(name), str):
            message = f"Missing required parameter: '{name}'."
            raise ApiError(400, message, code="missing_required_parameter", param=name)
    if body["endpoint"] not in BATCH_ENDPOINTS:
        raise ApiError(400, f"Invalid value: '{body['endpoint']}'.", code="invalid_value", param="endpoint")
    if body["completion_window"] != "24h":
        message = "Invalid value: only '24h' is supported."
        raise ApiError(400, message, code="invalid_value", param="completion_window")
    metadata = body.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise ApiError(400, "Invalid type for 'metadata': expected an object.", code="invalid_type", param="metadata")
    if len(metadata) > _MOST_PAIRS:
        raise ApiError(400, f"Invalid 'metadata': more than {_MOST_PAIRS} pairs.", param="metadata")
    for key, value in metadata.items():
        if not isinstance(value, str) or len(key) > _KEY_LENGTH or len(value) > _VALUE_LENGTH:
            raise ApiError(400, f"Invalid 'metadata.{key}'.", param="metadata")


def _not_found(batch_id: str) -> ApiError:
    return ApiError(404, f"No batch found with id '{batch_id}'.", param="id")
