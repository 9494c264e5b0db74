"""All state of one simulator put together, and brought back from its data folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from batchctl.simulator.batch import ENDED
from batchctl.simulator.batches import Batches
from batchctl.simulator.blobs import BlobStore
from batchctl.simulator.clock import VirtualClock
from batchctl.simulator.config import SimulatorConfig
from batchctl.simulator.errors import ANTHROPIC, OPENAI
from batchctl.simulator.faults import Faults
from batchctl.simulator.files import Files
from batchctl.simulator.gate import Gate
from batchctl.simulator.journal import Journal
from batchctl.simulator.ledger import ALIVE, Ledger
from batchctl.simulator.rendering import Renderer
from batchctl.simulator.services import Services
from batchctl.simulator.sync_lane import SyncLane


class World:
    """The parts of a simulator, and the questions a test may ask it."""

    def __init__(self, config: SimulatorConfig) -> None:
        if config.data:
            config.data.mkdir(parents=True, exist_ok=True)
        self.services = Services(
            config,
            VirtualClock(config.speed),
            Journal(config.data),
            BlobStore(config.data / "blobs" if config.data else None),
            Ledger(keep=config.keep_ledger),
            Faults(config.faults, config.seed),
        )
        self.files = Files(self.services)
        self.batches = Batches(self.services, self.files)
        self.renderer = Renderer(self.services)
        self.sync = SyncLane(self.services)
        self.gate = Gate(self.services, self.batches)
        self._restore()

    def ledger(self) -> Iterable[dict[str, Any]]:
        """Give every acceptance, in order."""
        self._catch_up()
        return self.services.ledger.entries()

    def violations(
        self, *, with_custom_id: bool = False, copies: Mapping[str, int] | None = None
    ) -> list[dict[str, Any]]:
        """List the items paid twice; `batchctl.simulator.ledger` says what that means."""
        self._catch_up()
        return self.services.ledger.violations(with_custom_id=with_custom_id, copies=copies)

    def stats(self) -> dict[str, Any]:
        """Count calls, statuses, faults, batches and what became of requests."""
        self._catch_up()
        ledger = self.services.ledger
        batches = {api: self._batch_counts(api) for api in (ANTHROPIC, OPENAI)}
        closed = sum(ledger.outcomes.values())
        return {
            "calls": dict(self.gate.calls),
            "statuses": dict(self.gate.statuses),
            "faults": dict(self.gate.fired),
            "batches": batches,
            "accepted": dict(ledger.accepted),
            "outcomes": dict(ledger.outcomes) | {ALIVE: sum(ledger.accepted.values()) - closed},
            "limits": {api: meters.public() for api, meters in self.sync.meters.items()},
        }

    def state(self) -> dict[str, Any]:
        """Show where every batch stands, and the clock."""
        self._catch_up()
        clock = self.services.clock
        shown = [
            {
                "id": batch.id,
                "api": batch.api,
                "phase": batch.phase,
                "ending": batch.ending,
                "requests": len(batch.items),
                "created_at": batch.created_at,
                "ended_at": batch.ended_at,
                "effects": batch.effects,
            }
            for api in (ANTHROPIC, OPENAI)
            for batch in self.batches.newest_first(api)
        ]
        files = [file.public() for file in self.files.oldest_first()]
        return {"now": clock.now(), "speed": clock.speed, "batches": shown, "files": files}

    def set_faults(self, faults: dict[str, Any]) -> None:
        """Replace the fault rules; counters start anew."""
        self.services.faults = Faults(faults, self.services.config.seed)

    def advance(self, seconds: float) -> None:
        """Push the clock forward, also for a later process."""
        self.services.clock.advance(seconds)
        now = self.services.clock.now()
        self.services.journal.write({"event": "clock", "at": now})
        self.batches.catch_up(now)

    def close(self) -> None:
        """Release what the data folder holds."""
        self.services.journal.close()

    def _catch_up(self) -> None:
        self.batches.catch_up(self.services.clock.now())

    def _batch_counts(self, api: str) -> dict[str, int]:
        batches = list(self.batches.newest_first(api))
        ended = sum(batch.phase == ENDED for batch in batches)
        return {"created": len(batches), "open": len(batches) - ended, "ended": ended}

    def _restore(self) -> None:
        latest = 0.0
        for event in self.services.journal.replay():
            latest = max(latest, event["at"])
            self.batches.catch_up(event["at"])
            self._apply(event)
        self.services.clock = VirtualClock(self.services.config.speed, latest)

    def _apply(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "batch":
            self.batches.restore(event)
        elif kind == "file":
            self.files.restore(event)
        elif kind == "sync":
            self.sync.restore(event)
        elif kind == "cancel":
            self._apply_cancel(event)
        elif kind == "batch_deleted":
            batch = self.batches.find_any(event["id"])
            self.batches.delete(batch, event["at"])
        elif kind == "file_deleted" and (file := self.files.get(event["id"])):
            self.files.delete(file, event["at"])

    def _apply_cancel(self, event: dict[str, Any]) -> None:
        until = float("inf") if event["until"] is None else event["until"]
        self.batches.cancel(self.batches.find_any(event["id"]), event["at"], until)
