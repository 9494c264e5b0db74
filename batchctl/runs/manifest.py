"""The manifest of a run: counts and references, never payloads."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from batchctl.core.model import Outcome, RunState
from batchctl.state.rows import BatchRow

if TYPE_CHECKING:
    from batchctl.runs.held import HeldRun  # the read-only commands show moments, and hold no run


def manifest_of(run: HeldRun, state: RunState) -> dict[str, Any]:
    """Everything about a run, in the state it is about to have, that another program needs to check its results."""
    row = run.refresh()
    rates = run.rates(row.model, batch=True)
    return {
        "run": row.name,
        "state": str(state),
        "fingerprint": row.fingerprint,
        "provider": row.provider,
        "endpoint": row.endpoint,
        "model": row.model,
        "inputs": row.inputs,
        "counts": {"planned": row.planned, "succeeded": row.succeeded, "failed": row.failed, "open": row.open},
        "outcomes": run.store.runs.outcomes(run.id),
        "batches": [_batch(batch) for batch in run.store.batches.all(run.id)],
        "tokens": {
            "input": row.input_tokens,
            "output": row.output_tokens,
            "cached_input": row.cached_input_tokens,
        },
        "cost_usd": row.cost_usd,
        "unpriced_answers": row.unpriced,
        "price_source": None if rates is None else rates.source,
        "created_at": rfc3339(row.created_at),
        "updated_at": rfc3339(row.updated_at),
        "seconds": round((row.updated_at - row.created_at).total_seconds(), 3),
        "files": {name: run.output.describe(f"{name}.jsonl") for name in ("results", "errors")},
    }


def rfc3339(moment: datetime | None) -> str | None:
    """A moment as RFC 3339 UTC text."""
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _batch(batch: BatchRow) -> dict[str, Any]:
    return {
        "number": batch.number,
        "batch_id": batch.batch_id,
        "state": str(batch.state),
        "provider_status": batch.provider_status,
        "round": batch.round,
        "requests": batch.requests,
        "bytes": batch.size,
        "outcomes": {str(outcome): getattr(batch, str(outcome)) for outcome in Outcome},
        "submitted_at": rfc3339(batch.submitted_at),
        "ended_at": rfc3339(batch.ended_at),
        "collected_at": rfc3339(batch.collected_at),
    }
