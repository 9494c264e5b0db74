"""The manifest of a run: counts and references, never payloads."""

from __future__ import annotations

from typing import Any

from batchctl.core.model import RunState
from batchctl.runs.held import HeldRun
from batchctl.runs.reading import batch_as_dict, summary_of


def manifest_of(run: HeldRun, state: RunState) -> dict[str, Any]:
    """Everything about a run, in the state it is about to have, that another program needs to check its results."""
    row = run.refresh()
    rates = run.rates(row.model, batch=True)
    return summary_of(run.store, row) | {
        "state": str(state),
        "fingerprint": row.fingerprint,
        "provider": row.provider,
        "endpoint": row.endpoint,
        "model": row.model,
        "inputs": row.inputs,
        "batches": [batch_as_dict(batch) for batch in run.store.batches.all(run.id)],
        "unpriced_answers": row.unpriced,
        "price_source": None if rates is None else rates.source,
        "seconds": round((row.updated_at - row.created_at).total_seconds(), 3),
        "files": {name: run.output.describe(f"{name}.jsonl") for name in ("results", "errors")},
    }
