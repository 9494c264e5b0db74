"""The sync lane in virtual time: budgets, pauses, the window, the breaker."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from batchctl.core.errors import Fault, ProviderError, SystemicError
from batchctl.core.model import RunState, Usage
from batchctl.providers.base import RateHeaders
from tests.fanout.virtual import Provider, planned, play


def plain(_id: str) -> Usage:
    """Every request takes the same."""
    return Usage(100, 20)


def one_second(_chance: random.Random) -> float:
    """Every answer takes as long."""
    return 1.0


def refusal(retry_after: float | None = None, status: int = 429) -> ProviderError:
    """An answer that asks to come again."""
    return ProviderError("busy", fault=Fault.RETRY, status=status, type="rate_limit_error", retry_after=retry_after)


@pytest.mark.slow
def test_requests_a_minute_hold_at_the_server(tmp_path: Path) -> None:
    """600 a minute with more on offer: never 601 in any minute by the server's clock, nothing refused (131, 132)."""
    provider = Provider(plain, one_second, {"requests": 600})
    with planned(tmp_path, [100] * 900, rpm=600) as run:
        played = play(run, provider)
        assert run.refresh().succeeded == 900
    assert (provider.refused, played.error) == (0, None)
    assert provider.worst["requests"] <= 1.0
    assert played.seconds < 900 / 600 * 60 * 1.04


@pytest.mark.slow
def test_a_token_budget_is_used_and_never_exceeded(tmp_path: Path) -> None:
    """Wrong estimates are corrected by usage; sizes vary by a factor of ten (field report 135)."""
    chance = random.Random(3)
    real = [min(6000, max(50, round(chance.lognormvariate(7, 0.7)))) for _ in range(1000)]
    provider = Provider(
        lambda id_: Usage(real[int(id_[1:]) - 1], 20), lambda c: c.lognormvariate(1, 0.6), {"tokens": 600_000}
    )
    with planned(tmp_path, [round(size * chance.uniform(0.9, 1.1)) for size in real], tpm=600_000) as run:
        play(run, provider)
    last = max(start for start, _ in provider.starts)
    assert provider.refused == 0
    assert provider.used / (600_000 * last / 60) > 0.96


@pytest.mark.slow
def test_limits_are_learned_from_answers(tmp_path: Path) -> None:
    """Without a word about limits the first answers tell them, and a share of one half is all that is used."""
    provider = Provider(plain, one_second, {"requests": 300}, rate=RateHeaders(requests_limit=600))
    with planned(tmp_path, [100] * 900, share=0.5) as run:
        played = play(run, provider)
        assert run.refresh().succeeded == 900
    assert provider.refused == 0
    assert played.seconds > 2 * 60


@pytest.mark.slow
def test_a_limit_set_too_high_is_found_out_and_said(tmp_path: Path) -> None:
    """A 429 lowers the pace, every item succeeds all the same, and the summary names the setting (field report 127)."""
    provider = Provider(plain, one_second, {"requests": 300}, rate=RateHeaders(requests_limit=300))
    with planned(tmp_path, [100] * 1200, rpm=600) as run:
        played = play(run, provider)
        assert run.refresh().succeeded == 1200
    assert 0 < provider.refused < 60
    (said,) = [event for event in played.events if event.kind == "fanout.refused"]
    assert "--rpm 300" in said.text


@pytest.mark.parametrize("status", [429, 529])
def test_retry_after_is_obeyed_by_everything(tmp_path: Path, status: int) -> None:
    """After `Retry-After: 30` no call at all for 30 seconds, then not all at once (field reports 139, 142, 150)."""
    provider = Provider(
        plain, one_second, fail=lambda _id, number, _now: refusal(30.0, status) if number == 60 else None
    )
    with planned(tmp_path, [100] * 400, rpm=1200) as run:
        play(run, provider)
        assert run.refresh().succeeded == 400
    told = provider.starts[59][0] + 0.3  # it is refused when it arrives
    assert not [start for start, _ in provider.starts if told < start < told + 29.7]
    after = [start for start, _ in provider.starts if start >= told + 29.7]
    assert sum(start < after[0] + 1 for start in after) <= 12
    assert Counter(id_ for _, id_ in provider.starts).total() == 401


@pytest.mark.slow
def test_a_storm_of_refusals_is_waited_out(tmp_path: Path) -> None:
    """While everything is refused for 20 seconds hardly a call goes out, and no item is lost (field report 141)."""
    provider = Provider(plain, one_second, fail=lambda _id, _number, now: refusal() if 5 <= now < 25 else None)
    with planned(tmp_path, [100] * 600, rpm=1200) as run:
        play(run, provider)
        row = run.refresh()
        assert (row.succeeded, row.failed) == (600, 0)
    storm = sum(5 <= start < 25 for start, _ in provider.starts)
    assert storm < 70  # 20 seconds at full pace would be 400


@pytest.mark.slow
def test_the_window_refills_at_once(tmp_path: Path) -> None:
    """On latencies with a long tail the window is full 95 % of the time, where waves would be at a quarter."""
    provider = Provider(plain, lambda chance: chance.lognormvariate(0, 1.0), way=(0, 0), seed=3)
    with planned(tmp_path, [100] * 2000, concurrency=20) as run:
        played = play(run, provider)
    assert provider.most_in_flight == 20
    assert provider.busy / (20 * played.seconds) >= 0.95
    chance = random.Random(1)
    durations = [chance.lognormvariate(0, 1.0) for _ in range(2000)]
    waves = sum(max(durations[start : start + 20]) for start in range(0, 2000, 20))
    assert waves / played.seconds >= 4


def test_systemic_errors_stop_at_once_and_cost_no_item(tmp_path: Path) -> None:
    """A credential that expires at call 300: few more calls, nothing failed, exit 6 (field reports 145, 147)."""
    bad = ProviderError("invalid key", fault=Fault.SYSTEMIC, status=401)
    provider = Provider(plain, one_second, fail=lambda _id, number, _now: bad if number >= 300 else None)
    with planned(tmp_path, [100] * 1000, rpm=1200) as run:
        played = play(run, provider)
        row = run.refresh()
    assert isinstance(played.error, SystemicError)
    assert (row.state, row.succeeded, row.failed, row.open) == (RunState.STOPPED, 299, 0, 701)
    assert len(provider.starts) < 360


@pytest.mark.parametrize(("dies", "most"), [(1, 4), (300, 359)])
def test_a_dead_key_costs_few_calls_also_without_limits(tmp_path: Path, dies: int, most: int) -> None:
    """While an account tells no limits the window opens slowly enough (field report 145)."""
    bad = ProviderError("invalid key", fault=Fault.SYSTEMIC, status=401)
    provider = Provider(plain, one_second, fail=lambda _id, number, _now: bad if number >= dies else None)
    with planned(tmp_path, [100] * 1000) as run:
        played = play(run, provider)
        assert run.refresh().failed == 0
    assert isinstance(played.error, SystemicError)
    assert len(provider.starts) <= most


def test_one_poisoned_item_costs_itself(tmp_path: Path) -> None:
    """Among 1,000 items one that always fails is tried five times, and the others do not wait for it."""
    provider = Provider(plain, one_second, fail=lambda id_, _n, _now: refusal(None, 500) if id_ == "i500" else None)
    with planned(tmp_path, [100] * 1000, rpm=6000) as run:
        play(run, provider)
        row = run.refresh()
        attempts = run.store.items.attempts(run.id, 500)
    assert (row.state, row.succeeded, row.failed) == (RunState.DONE, 999, 1)
    assert Counter(id_ for _, id_ in provider.starts)["i500"] == 5
    assert [attempt.number for attempt in attempts] == [1, 2, 3, 4, 5]


def test_a_failing_run_is_stopped_by_its_rate(tmp_path: Path) -> None:
    """When more than a fifth of the last 50 items fail for good, the rest stays open."""
    bad = ProviderError("no", fault=Fault.PERMANENT, status=400, type="invalid_request_error")
    provider = Provider(plain, one_second, fail=lambda id_, _n, _now: bad if int(id_[1:]) % 3 == 0 else None)
    with planned(tmp_path, [100] * 1000, rpm=1200) as run:
        played = play(run, provider)
        row = run.refresh()
    assert isinstance(played.error, SystemicError)
    assert "invalid_request_error" in played.error.message
    assert row.failed < 60
    assert row.open > 800


def test_a_request_larger_than_a_minute_fails_alone(tmp_path: Path) -> None:
    """It never waits for ever and holds nobody up (field report 125)."""
    provider = Provider(plain, one_second, {"tokens": 10_000})
    with planned(tmp_path, [100, 10_500, 100], tpm=10_000) as run:
        play(run, provider)
        row = run.refresh()
    assert (row.succeeded, row.failed) == (2, 1)
    assert len(provider.starts) == 2


def test_the_cost_stays_under_its_cap(tmp_path: Path) -> None:
    """Nothing is sent that could take the run over --max-cost; what is done is kept."""
    provider = Provider(plain, one_second)
    with planned(tmp_path, [100] * 500, max_cost=0.05) as run:
        played = play(run, provider)
        row = run.refresh()
    assert isinstance(played.error, SystemicError)
    assert 0.04 < row.cost_usd <= 0.05
    assert row.state is RunState.STOPPED


@pytest.mark.slow
def test_progress_is_said_every_ten_seconds(tmp_path: Path) -> None:
    """A line holds all that a person watches for; between the lines there are only pulses for a live display."""
    provider = Provider(plain, one_second)
    with planned(tmp_path, [100] * 1000, rpm=1200) as run:
        played = play(run, provider)
    lines = [event for event in played.events if event.kind == "fanout.progress" and event.level >= 20]
    assert len(lines) == int(played.seconds // 10) + 1
    data = lines[2].data
    assert data["admitted"] >= data["completed"] > 500
    assert data["items_per_minute"] == pytest.approx(1200, rel=0.1)
    assert data["tokens_per_minute"] == pytest.approx(144_000, rel=0.1)
    assert 0 < data["in_flight"] <= data["window"]
    assert 0 < data["oldest_seconds"] < 2
    assert data["eta_seconds"] < 30
    for word in ("admitted", "in flight", "oldest", "items/min", "429", "window", "$", "left"):
        assert word in lines[2].text
