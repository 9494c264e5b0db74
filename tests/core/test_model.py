"""The moves allowed between states, and what an error carries."""

from __future__ import annotations

import pytest

from batchctl.core.errors import EXIT_CODES, BatchctlError, Fault, ProviderError
from batchctl.core.model import BATCH_MOVES, RUN_MOVES, BatchState, RunState, batch_sources, run_sources


def test_every_state_has_its_moves() -> None:
    """No state is forgotten, and sources are the moves turned round."""
    assert set(BATCH_MOVES) == set(BatchState)
    assert set(RUN_MOVES) == set(RunState)
    for state in BatchState:
        assert set(batch_sources(state)) == {source for source in BatchState if state in BATCH_MOVES[source]}
    for run_state in RunState:
        assert set(run_sources(run_state)) == {source for source in RunState if run_state in RUN_MOVES[source]}


@pytest.mark.parametrize("state", [BatchState.SUBMITTING, BatchState.UNKNOWN])
def test_a_batch_in_doubt_is_not_taken_apart(state: BatchState) -> None:
    """What may exist at the provider is never withdrawn or collected before it is settled."""
    assert not BATCH_MOVES[state] & {BatchState.WITHDRAWN, BatchState.COLLECTED}


def test_every_error_has_an_exit_code_of_the_table() -> None:
    """The documented exit codes are all there are."""
    known = {code for code, _ in EXIT_CODES}
    assert {kind.exit_code for kind in BatchctlError.__subclasses__()} <= known


def test_a_provider_error_carries_its_class() -> None:
    """What a failed call means travels with it."""
    error = ProviderError("no", fault=Fault.RETRY, status=429, retry_after=3.0, hint="wait")
    assert (error.fault, error.status, error.retry_after, error.hint) == (Fault.RETRY, 429, 3.0, "wait")
