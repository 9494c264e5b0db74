"""The batches of both providers: taken in, moved through their phases, and booked item by item."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator
from math import inf
from typing import Any

from batchctl.simulator.batch import CANCELING, ENDED, FINALIZING, RUNNING, VALIDATING, Batch, Items
from batchctl.simulator.codec import decode
from batchctl.simulator.errors import ANTHROPIC, OPENAI
from batchctl.simulator.faults import Item
from batchctl.simulator.files import Files
from batchctl.simulator.intake import read_input_file, read_kept_requests
from batchctl.simulator.kinds import CODE, KINDS, OK, REJECTED, ledger_outcome
from batchctl.simulator.services import Services, log_normal

# Field of a batch that the journal keeps as it is.
_KEPT = (
    "id",
    "api",
    "seq",
    "created_at",
    "start_at",
    "expires_at",
    "finalizing",
    "blob",
    "effects",
    "order_seed",
    "endpoint",
    "version",
    "metadata",
    "input_file_id",
    "errors",
    "output_expires",
)


class Batches:
    """All batches, in the order of their creation; every change of phase happens in `catch_up`."""

    def __init__(self, services: Services, files: Files) -> None:
        self._services = services
        self._files = files
        self._batches: dict[str, Batch] = {}
        self._open: dict[str, Batch] = {}
        self._numbers: Counter[str] = Counter()
        self._next_change = inf
        self.sightings: Counter[tuple[str, str]] = Counter()

    def get(self, batch_id: str, api: str) -> Batch | None:
        """Find a batch that was not deleted."""
        batch = self._batches.get(batch_id)
        return batch if batch and batch.api == api and not batch.deleted else None

    def find_any(self, batch_id: str) -> Batch:
        """Find a batch that the journal speaks of."""
        return self._batches[batch_id]

    def newest_first(self, api: str) -> Iterator[Batch]:
        """Yield the batches that were not deleted, as both providers list them."""
        return (batch for batch in reversed(self._batches.values()) if batch.api == api and not batch.deleted)

    def open_batches(self, api: str) -> list[Batch]:
        """List the batches that may still do work."""
        return [batch for batch in self._open.values() if batch.api == api]

    def create(
        self, batch_id: str, api: str, items: Items, rejected: bytes, effects: dict[str, Any], **fields: Any
    ) -> Batch:
        """Take in a new batch: fix its timetable and what each item comes to, and book its items as accepted."""
        services = self._services
        config = services.config
        number = self._numbers[api] + 1
        now = services.clock.now()
        self.catch_up(now)
        start = now + config.validation_seconds if api == OPENAI else now
        length = effects.get("duration")
        if length is None:
            length = log_normal(config.batch_seconds, config.batch_spread, config.seed, "batch", api, number)
        endless = "expire" in effects or effects.get("stuck")
        batch = Batch(
            id=batch_id,
            api=api,
            seq=number,
            created_at=now,
            start_at=start,
            finish_at=inf if endless else start + float(length),
            expires_at=now + config.expiry_seconds,
            finalizing=config.finalizing_seconds,
            items=items,
            plan=b"",
            effects=effects,
            order_seed=config.seed * 1_000_003 + number,
            phase=VALIDATING if api == OPENAI else RUNNING,
            **fields,
        )
        self._book(batch, rejected)
        services.journal.write(
            {"event": "batch", "at": now, "finish_at": None if endless else batch.finish_at, "plan": batch.plan}
            | {name: getattr(batch, name) for name in _KEPT}
        )
        return batch

    def restore(self, event: dict[str, Any]) -> None:
        """Take in a batch of an earlier process."""
        batch = Batch(
            items=self._kept_items(event),
            plan=base64.b64decode(event["plan"]),
            finish_at=inf if event["finish_at"] is None else event["finish_at"],
            phase=VALIDATING if event["api"] == OPENAI else RUNNING,
            **{name: event[name] for name in _KEPT},
        )
        self._book(batch, b"")

    def _kept_items(self, event: dict[str, Any]) -> Items:
        services = self._services
        if not event["blob"]:
            return Items()
        if event["api"] == ANTHROPIC:
            return read_kept_requests(services.blobs, event["blob"])
        return read_input_file(services.blobs, event["blob"], event["endpoint"], services.config).items

    def cancel(self, batch: Batch, at: float, until: float | None = None) -> None:
        """Ask a batch to stop; a batch that has ended stays as it is."""
        if batch.phase in (ENDED, CANCELING):
            return
        batch.phase = CANCELING
        batch.cancel_at = batch.stopped_at = at
        if until is None:
            lasts = batch.effects.get("cancel_seconds", self._services.config.cancel_seconds)
            until = inf if batch.effects.get("cancel_never_ends") else at + lasts
        batch.cancel_until = until
        self._next_change = min(self._next_change, until)
        kept = None if until == inf else until
        self._services.journal.write({"event": "cancel", "at": at, "id": batch.id, "until": kept})

    def delete(self, batch: Batch, at: float) -> None:
        """Forget a batch and its results."""
        batch.deleted = True
        self._services.journal.write({"event": "batch_deleted", "at": at, "id": batch.id})

    def catch_up(self, now: float) -> None:
        """Make every change of phase that is due, in the order of their moments.

        The moment is kept, so that a batch that was seen to end has ended for a later process too.
        """
        changed = False
        while self._next_change <= now:
            # A cancel may have moved the change that was expected, so the due batch is looked up anew.
            batch = min(self._open.values(), key=Batch.next_change, default=None)
            if batch is None or batch.next_change() > now:
                self._next_change = batch.next_change() if batch else inf
                break
            self._change_phase(batch, batch.next_change())
            changed = True
        if changed:
            self._services.journal.write({"event": "clock", "at": now})

    def enqueued_tokens(self, model: str) -> int:
        """Count the prompt tokens of batches that passed validation and have not ended."""
        phases = (RUNNING, FINALIZING, CANCELING)
        return sum(
            batch.items.tokens
            for batch in self._open.values()
            if batch.api == OPENAI and batch.items.model == model and batch.phase in phases
        )

    def _book(self, batch: Batch, rejected: bytes) -> None:
        services = self._services
        self._batches[batch.id] = self._open[batch.id] = batch
        self._numbers[batch.api] = batch.seq
        items = batch.items
        plan = bytearray(batch.plan)
        for place, (custom_id, digest) in enumerate(zip(items.custom_ids, items.digests, strict=True)):
            attempt = services.ledger.next_attempt(digest, batch.id)
            if not batch.plan:
                plan.append(CODE[REJECTED] if rejected[place] else self._kind(batch, place, attempt))
            batch.entries.append(
                services.ledger.accept(
                    batch.api, "batch", digest, attempt, batch.created_at, batch_id=batch.id, custom_id=custom_id
                )
            )
        batch.plan = bytes(plan)
        self._next_change = min(self._next_change, batch.next_change())

    def _kind(self, batch: Batch, place: int, attempt: int) -> int:
        faults = self._services.faults
        if not faults.source.get("items"):
            return CODE[OK]
        items = batch.items
        item = Item(
            batch.api, "batch", items.custom_ids[place], items.digests[place], attempt, lambda: self._text(batch, place)
        )
        return CODE[faults.for_item(item)]

    def _text(self, batch: Batch, place: int) -> str:
        start = batch.items.starts[place]
        with self._services.blobs.view(batch.blob) as source:
            line = source[start : start + batch.items.lengths[place]]
        request = decode(line)
        # Every string of the body, so that a rule may look for any text, unescaped.
        return "\n".join(_strings(request["params" if batch.api == ANTHROPIC else "body"]))

    def _change_phase(self, batch: Batch, at: float) -> None:
        if batch.phase == VALIDATING:
            batch.errors = batch.errors or self._queue_error(batch)
            if batch.errors:
                self._end(batch, at, "failed")
            else:
                batch.phase = RUNNING
        elif batch.phase == CANCELING:
            self._end(batch, at, "canceled")
        elif batch.phase == RUNNING and batch.deadline() <= batch.finish_at:
            self._end(batch, at, "expired")
        elif batch.phase == RUNNING and batch.api == OPENAI:
            batch.phase = FINALIZING
            batch.stopped_at = at
        else:
            self._end(batch, at, "completed")

    def _queue_error(self, batch: Batch) -> list[dict[str, Any]]:
        limit = self._services.config.openai_enqueued_tokens
        model = batch.items.model
        if limit is None or self.enqueued_tokens(model) + batch.items.tokens <= limit:
            return []
        return [queue_limit_error(model, limit)]

    def _end(self, batch: Batch, at: float, ending: str) -> None:
        done = 0 if ending == "failed" else batch.progress(at)
        batch.done = done
        batch.phase = ENDED
        batch.ending = ending
        batch.ended_at = at
        del self._open[batch.id]
        ledger = self._services.ledger
        left_over = ending if ending in ("failed", "expired", "canceled") else "missing"
        for rank, place in enumerate(batch.order()):
            kind = KINDS[batch.plan[place]] if rank < done else left_over
            outcome = left_over if rank >= done else ledger_outcome(kind)
            ledger.close(batch.entries[place], outcome, at, kind)
        batch.entries = []
        if batch.api == OPENAI:
            self._files.add_outputs(batch)


def queue_limit_error(model: str, limit: int) -> dict[str, Any]:
    """Build the line-less error of a full queue (openai-python issue 2084)."""
    message = (
        f"Enqueued token limit reached for {model} in organization org-simulated. Limit: {limit:,} enqueued tokens. "
        "Please try again once some in_progress batches have been completed."
    )
    return {"code": "token_limit_exceeded", "line": None, "message": message, "param": None}


def waiting_requests(batches: Batches) -> int:
    """Count the requests in Anthropic's queue: each counts until it is processed (rate-limits page)."""
    return sum(len(batch.items) for batch in batches.open_batches(ANTHROPIC))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part)
