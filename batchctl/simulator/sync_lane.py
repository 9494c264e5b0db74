"""Synchronous calls of both providers: checked, limited, booked, answered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from batchctl.simulator.anthropic_shapes import check_params, write_message
from batchctl.simulator.anthropic_shapes import read_prompt as read_anthropic_prompt
from batchctl.simulator.codec import body_digest, encode
from batchctl.simulator.content import Prompt
from batchctl.simulator.errors import ANTHROPIC, OPENAI
from batchctl.simulator.faults import Item
from batchctl.simulator.http import Reply, parse_object
from batchctl.simulator.kinds import FAILURES, OK, failure, ledger_outcome
from batchctl.simulator.ledger import LOST, Acceptance
from batchctl.simulator.limits import SyncMeters
from batchctl.simulator.openai_shapes import check_body, output_limit, write_answer
from batchctl.simulator.openai_shapes import read_prompt as read_openai_prompt
from batchctl.simulator.services import Services, log_normal, new_id


@dataclass(slots=True)
class _Call:
    api: str
    endpoint: str
    body: dict[str, Any]
    prompt: Prompt
    most: int | None


class SyncLane:
    """The synchronous side of both APIs."""

    def __init__(self, services: Services) -> None:
        self._services = services
        config = services.config
        self.meters = {
            ANTHROPIC: SyncMeters(ANTHROPIC, config.anthropic_limits),
            OPENAI: SyncMeters(OPENAI, config.openai_limits),
        }
        self._number = 0

    async def message(self, data: bytes, version: str) -> Reply:
        """Answer POST /v1/messages."""
        body = parse_object(data)
        context = self._services.config.context_tokens
        if error := check_params(body, version=version, context_tokens=context, batch=False):
            raise error
        return await self._answer(_Call(ANTHROPIC, "", body, read_anthropic_prompt(body), body.get("max_tokens")))

    async def openai(self, data: bytes, endpoint: str) -> Reply:
        """Answer POST on one of OpenAI's answered endpoints."""
        body = parse_object(data)
        if error := check_body(body, endpoint, self._services.config.context_tokens):
            raise error
        return await self._answer(_Call(OPENAI, endpoint, body, read_openai_prompt(body, endpoint), output_limit(body)))

    def restore(self, event: dict[str, Any]) -> None:
        """Book a call of an earlier process."""
        ledger = self._services.ledger
        digest = bytes.fromhex(event["digest"])
        entry = ledger.accept(event["api"], "sync", digest, ledger.next_attempt(digest, None), event["at"])
        ledger.close(entry, event["outcome"], event["at"], event["detail"])

    async def _answer(self, call: _Call) -> Reply:
        services = self._services
        clock = services.clock
        identity = new_id("")
        now = clock.now()
        answer = self._write(call, OK, identity, now)
        meters = self.meters[call.api]
        meters.admit(call.prompt.tokens, _output_tokens(answer), call.most, now)
        digest = body_digest(call.body)
        attempt = services.ledger.next_attempt(digest, None)
        kind = services.faults.for_item(
            Item(call.api, "sync", None, digest, attempt, lambda: f"{call.prompt.system}\n{call.prompt.user}")
        )
        entry = services.ledger.accept(call.api, "sync", digest, attempt, now)
        await self._take_time()
        headers = meters.headers(clock.now()) if meters.meters else {}
        if kind in FAILURES:
            error = failure(kind, call.api)
            return Reply(
                error.body(call.api, new_id("req_")),
                error.status,
                headers | error.headers,
                on_sent=lambda sent: self._close(entry, kind, sent=sent),
            )
        if kind != OK:
            answer = self._write(call, kind, identity, now)
        return Reply(encode(answer), headers=headers, on_sent=lambda sent: self._close(entry, kind, sent=sent))

    def _write(self, call: _Call, kind: str, identity: str, at: float) -> dict[str, Any]:
        if call.api == ANTHROPIC:
            return write_message(call.body, kind, identity=identity, batch=False)
        dimensions = self._services.config.embedding_dimensions
        return write_answer(call.body, call.endpoint, kind, identity=identity, at=at, dimensions=dimensions)

    async def _take_time(self) -> None:
        config = self._services.config
        if config.latency_seconds <= 0:
            return
        self._number += 1
        length = log_normal(config.latency_seconds, config.latency_spread, config.seed, "latency", self._number)
        await asyncio.sleep(self._services.clock.real(length))

    def _close(self, entry: Acceptance, kind: str, *, sent: bool) -> None:
        outcome = ledger_outcome(kind)
        if outcome != "errored":
            # Endings such as `expired` mean nothing for a single call: it is answered.
            outcome = "succeeded" if sent else LOST
        now = self._services.clock.now()
        self._services.ledger.close(entry, outcome, now, kind)
        self._services.journal.write(
            {
                "event": "sync",
                "at": now,
                "api": entry.api,
                "digest": entry.digest.hex(),
                "outcome": outcome,
                "detail": kind,
            }
        )


def _output_tokens(answer: dict[str, Any]) -> int:
    usage = answer["usage"]
    return int(usage.get("output_tokens") or usage.get("completion_tokens") or 0)
