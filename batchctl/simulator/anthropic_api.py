"""Anthropic's endpoints: messages, token counting, message batches, models (platform.claude.com API reference)."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from batchctl.simulator.anthropic_shapes import check_params, read_prompt
from batchctl.simulator.batch import CANCELING, ENDED, Batch
from batchctl.simulator.batches import Batches, waiting_requests
from batchctl.simulator.clock import rfc3339
from batchctl.simulator.errors import ANTHROPIC, ApiError
from batchctl.simulator.http import Download, Reply, json_reply, page_size, parse_object, read_body
from batchctl.simulator.intake import read_create
from batchctl.simulator.kinds import MISSING_MODELS, missing_model
from batchctl.simulator.rendering import Renderer, results_blob
from batchctl.simulator.services import Services, new_id
from batchctl.simulator.sync_lane import SyncLane
from batchctl.simulator.visibility import hidden_from_list, hidden_from_retrieve

_RESULTS_KEPT = 29 * 86_400
_IN_A_THREAD = 1_000_000


class AnthropicApi:
    """Handlers of one provider; faults and credentials are the gate's."""

    def __init__(self, services: Services, batches: Batches, renderer: Renderer, sync: SyncLane) -> None:
        self._services = services
        self._batches = batches
        self._renderer = renderer
        self._sync = sync

    async def message(self, request: web.Request) -> Reply:
        """Answer one message."""
        body = await read_body(request, self._services.config.anthropic_message_bytes)
        return await self._sync.message(body, _version(request))

    async def count_tokens(self, request: web.Request) -> Reply:
        """Count the input tokens of a message."""
        config = self._services.config
        params = parse_object(await read_body(request, config.anthropic_message_bytes))
        error = check_params(
            params, version=_version(request), context_tokens=config.context_tokens, batch=False, counting=True
        )
        if error:
            raise error
        return json_reply({"input_tokens": read_prompt(params).tokens})

    async def model(self, request: web.Request) -> Reply:
        """Describe a model (anthropic types/model_info.py)."""
        name = request.match_info["model"]
        if MISSING_MODELS.match(name):
            raise missing_model(name, ANTHROPIC)
        yes = {"supported": True}
        no = {"supported": False}
        capabilities: dict[str, Any] = dict.fromkeys(
            ("batch", "citations", "code_execution", "image_input", "pdf_input", "structured_outputs"), yes
        )
        capabilities["context_management"] = no
        capabilities["effort"] = no
        capabilities["server_tools"] = no
        capabilities["thinking"] = no
        return json_reply(
            {
                "type": "model",
                "id": name,
                "display_name": name,
                "created_at": "2026-01-01T00:00:00Z",
                "lifecycle": "active",
                "max_input_tokens": self._services.config.context_tokens,
                "max_tokens": 64_000,
                "capabilities": capabilities,
            }
        )

    async def create(self, request: web.Request) -> Reply:
        """Create a batch from all its requests."""
        services = self._services
        body = await read_body(request, services.config.anthropic_max_bytes)
        version = _version(request)
        batch_id = new_id("msgbatch_")
        arguments = (body, services.config, version, services.blobs, batch_id)
        large = len(body) > _IN_A_THREAD
        intake = await asyncio.to_thread(read_create, *arguments) if large else read_create(*arguments)
        limit = services.config.anthropic_queue_requests
        if limit is not None and waiting_requests(self._batches) + len(intake.items) > limit:
            services.blobs.delete(batch_id)
            message = f"Number of requests in the batch processing queue would exceed your limit of {limit:,}."
            raise ApiError(429, message, headers={"retry-after": "60"})
        batch = self._batches.create(
            batch_id,
            ANTHROPIC,
            intake.items,
            bytes(intake.rejected),
            services.faults.for_batch(ANTHROPIC, len(intake.items)),
            blob=batch_id,
            version=version,
        )
        return json_reply(self._public(batch, request))

    async def retrieve(self, request: web.Request) -> Reply:
        """Show a batch."""
        batch = self._find(request)
        if hidden_from_retrieve(batch, self._batches.sightings, self._services.clock.now()):
            raise _not_found(batch.id)
        return json_reply(self._public(batch, request))

    async def list(self, request: web.Request) -> Reply:
        """List batches, newest first, from either end."""
        now = self._services.clock.now()
        size = page_size(request, 20, 1000)
        sightings = self._batches.sightings
        batches = [
            batch for batch in self._batches.newest_first(ANTHROPIC) if not hidden_from_list(batch, sightings, now)
        ]
        ids = [batch.id for batch in batches]
        if after := request.query.get("after_id"):
            start = _position(ids, after) + 1
            page, more = batches[start : start + size], len(batches) > start + size
        elif before := request.query.get("before_id"):
            end = _position(ids, before)
            page, more = batches[max(0, end - size) : end], end > size
        else:
            page, more = batches[:size], len(batches) > size
        return json_reply(
            {
                "data": [self._public(batch, request) for batch in page],
                "has_more": more,
                "first_id": page[0].id if page else None,
                "last_id": page[-1].id if page else None,
            }
        )

    async def cancel(self, request: web.Request) -> Reply:
        """Ask a batch to stop."""
        batch = self._find(request)
        self._batches.cancel(batch, self._services.clock.now())
        return json_reply(self._public(batch, request))

    async def delete(self, request: web.Request) -> Reply:
        """Delete an ended batch."""
        batch = self._find(request)
        if batch.phase != ENDED:
            raise ApiError(400, "Message Batch cannot be deleted while it is in progress; cancel it first.")
        self._batches.delete(batch, self._services.clock.now())
        return json_reply({"id": batch.id, "type": "message_batch_deleted"})

    async def results(self, request: web.Request) -> Download:
        """Stream the results of an ended batch as JSON lines."""
        batch = self._find(request)
        if batch.phase != ENDED:
            raise ApiError(400, f"Batch {batch.id} has no available results until it has finished processing.")
        if self._archived(batch):
            raise ApiError(404, f"The results of batch {batch.id} are no longer available.")
        await self._renderer.ensure(batch)
        return Download(results_blob(batch), "application/x-jsonl")

    def _find(self, request: web.Request) -> Batch:
        batch_id = request.match_info["batch_id"]
        batch = self._batches.get(batch_id, ANTHROPIC)
        if batch is None:
            raise _not_found(batch_id)
        return batch

    def _archived(self, batch: Batch) -> bool:
        return self._services.clock.now() >= batch.created_at + _RESULTS_KEPT

    def _public(self, batch: Batch, request: web.Request) -> dict[str, Any]:
        """Give the batch object (anthropic types/messages/message_batch.py)."""
        ended = batch.phase == ENDED
        status = {CANCELING: "canceling", ENDED: "ended"}.get(batch.phase, "in_progress")
        host = batch.effects.get("results_host") or f"{request.scheme}://{request.host}"
        url = f"{host}/v1/messages/batches/{batch.id}/results"
        archived = self._archived(batch)
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": status if status != "in_progress" else batch.effects.get("status", status),
            "request_counts": _counts(batch),
            "created_at": rfc3339(batch.created_at),
            "expires_at": rfc3339(batch.expires_at),
            "ended_at": rfc3339(batch.ended_at),
            "cancel_initiated_at": rfc3339(batch.cancel_at),
            "archived_at": rfc3339(batch.created_at + _RESULTS_KEPT) if archived else None,
            "results_url": url if ended and not archived else None,
        }


def _counts(batch: Batch) -> dict[str, int]:
    """Count outcomes; all but `processing` stay 0 until the end (message_batch_request_counts.py)."""
    counts = dict.fromkeys(("succeeded", "errored", "canceled", "expired"), 0)
    if batch.phase != ENDED:
        return {"processing": len(batch.items)} | counts
    tally = batch.tally(0.0)
    counts = {name: tally[name] for name in counts}
    if batch.ending in ("expired", "canceled"):
        counts[batch.ending] += tally["not_run"]
    # A result that will be missing from the file is still counted, as the provider thinks it delivered it.
    counts["succeeded"] += tally["missing"]
    return {"processing": 0} | counts


def _version(request: web.Request) -> str:
    return request.headers.get("anthropic-version", "2023-06-01")


def _position(ids: list[str], wanted: str) -> int:
    if wanted not in ids:
        raise ApiError(400, f"Invalid cursor: {wanted}")
    return ids.index(wanted)


def _not_found(batch_id: str) -> ApiError:
    return ApiError(404, f"No message batch found with id {batch_id}")
