"""The manifest of a run: counts and references, never payloads."""

from __future__ import annotations

from typing import Any

from batchctl.core.model import Outcome, RunState
from batchctl.core.prices import MONEY_PLACES
from batchctl.runs.held import HeldRun
from batchctl.state.rows import BatchRow, stamp, stamp_or_none


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
        "cost_usd": round(row.cost_usd, MONEY_PLACES),
        "unpriced_answers": row.unpriced,
        "price_source": None if rates is None else rates.source,
        "created_at": stamp(row.created_at),
        "updated_at": stamp(row.updated_at),
        "seconds": round((row.updated_at - row.created_at).total_seconds(), 3),
        "files": {name: run.output.describe(f"{name}.jsonl") for name in ("results", "errors")},
    }


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
        "submitted_at": stamp_or_none(batch.submitted_at),
        "ended_at": stamp_or_none(batch.ended_at),
        "collected_at": stamp_or_none(batch.collected_at),
    }
