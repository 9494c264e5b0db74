"""Writing the result lines of an ended batch, in working order, without holding up other requests."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from batchctl.simulator.anthropic_shapes import check_params, write_message
from batchctl.simulator.batch import Batch
from batchctl.simulator.codec import decode, encode, short_hash
from batchctl.simulator.errors import ANTHROPIC, ApiError
from batchctl.simulator.files import has_errors, has_output, result_file_id
from batchctl.simulator.kinds import ENDINGS, FAILURES, KINDS, REJECTED, failure
from batchctl.simulator.openai_shapes import check_body, write_answer
from batchctl.simulator.services import Services

_LINES_AT_A_TIME = 100


def results_blob(batch: Batch) -> str:
    """Name the blob of Anthropic results."""
    return f"results-{batch.id}"


class Renderer:
    """Writes each batch's results once, on first need."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def ensure(self, batch: Batch) -> None:
        """Write the results of an ended batch unless they exist."""
        async with self._locks[batch.id]:
            names = self._blob_names(batch)
            if not all(self._services.blobs.has(name) for name in names.values()):
                await self._write(batch, names)

    def _blob_names(self, batch: Batch) -> dict[str, str]:
        if batch.api == ANTHROPIC:
            return {"output": results_blob(batch)}
        present = {"output": has_output(batch), "error": has_errors(batch)}
        return {kind: result_file_id(batch, kind) for kind, there in present.items() if there}

    async def _write(self, batch: Batch, names: dict[str, str]) -> None:
        blobs = self._services.blobs
        sinks = {kind: blobs.writer(name) for kind, name in names.items()}
        with blobs.view(batch.blob) as source:
            for rank, place in enumerate(batch.order()):
                kind = KINDS[batch.plan[place]] if rank < batch.done else batch.ending
                if kind != "missing":
                    start = batch.items.starts[place]
                    line = source[start : start + batch.items.lengths[place]]
                    target, result = self._result(batch, decode(line), kind)
                    if target:
                        sinks[target].write(_line(result))
                if rank % _LINES_AT_A_TIME == 0:
                    await asyncio.sleep(0)
        for sink in sinks.values():
            sink.commit()

    def _result(self, batch: Batch, request: dict[str, Any], kind: str) -> tuple[str | None, dict[str, Any]]:
        custom_id = request["custom_id"]
        identity = f"{batch.id}/{custom_id}"
        if batch.api == ANTHROPIC:
            result = self._anthropic_result(batch, request["params"], kind, identity)
            return "output", {"custom_id": custom_id, "result": result}
        return self._openai_result(batch, request, kind, identity)

    def _anthropic_result(self, batch: Batch, params: Any, kind: str, identity: str) -> dict[str, Any]:
        if kind in ENDINGS:
            return {"type": kind}
        if kind == "string_error":
            return {"type": "errored", "error": "boom"}
        error = self._failure(kind, batch, params)
        if error:
            request_id = f"req_{short_hash('req', identity).hex()}"
            shown = {"type": "error", "error": error.anthropic_error(), "request_id": request_id}
            return {"type": "errored", "error": shown}
        return {"type": "succeeded", "message": write_message(params, kind, identity=identity, batch=True)}

    def _openai_result(
        self, batch: Batch, request: dict[str, Any], kind: str, identity: str
    ) -> tuple[str | None, dict[str, Any]]:
        line: dict[str, Any] = {
            "id": f"batch_req_{short_hash('line', identity).hex()}",
            "custom_id": request["custom_id"],
            "response": None,
            "error": None,
        }
        if kind == "canceled":
            return None, line
        if kind == "expired":
            message = "This request could not be executed before the completion window expired."
            line["error"] = {"code": "batch_expired", "message": message}
            return "error", line
        if kind == "string_error":
            line["error"] = "boom"
            return "error", line
        body = request["body"]
        error = self._failure(kind, batch, body)
        request_id = f"req_{short_hash('req', identity).hex()}"
        if kind == "status_0":
            line["response"] = {"status_code": 0, "request_id": "", "body": None}
            return "error", line
        if error:
            content: Any = {"error": error.openai_error()}
            line["response"] = {"status_code": error.status, "request_id": request_id, "body": content}
            return "error", line
        content = self._openai_answer(batch, body, kind, identity)
        line["response"] = {"status_code": 200, "request_id": request_id, "body": content}
        return "output", line

    def _openai_answer(self, batch: Batch, body: dict[str, Any], kind: str, identity: str) -> dict[str, Any]:
        dimensions = self._services.config.embedding_dimensions
        at = batch.ended_at or batch.created_at
        return write_answer(body, batch.endpoint, kind, identity=identity, at=at, dimensions=dimensions)

    def _failure(self, kind: str, batch: Batch, body: Any) -> ApiError | None:
        if kind in FAILURES:
            return failure(kind, batch.api)
        if kind != REJECTED:
            return None
        context = self._services.config.context_tokens
        if batch.api == ANTHROPIC:
            return check_params(body, version=batch.version, context_tokens=context, batch=True)
        return check_body(body, batch.endpoint, context)


def _line(result: dict[str, Any]) -> bytes:
    """Write one line; msgspec leaves U+2028 and its kin raw, as providers do."""
    return encode(result) + b"\n"
