"""Ends that leave it open whether something was answered: nothing is bought again, and a person has a way out."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

from tests.cli.passes import LATER, events, poll_at
from tests.cli.test_doubt import stranger
from tests.cli.test_odd_answers import TEXT, answering, batch_id, line
from tests.conftest import Desk

MakeDesk = Callable[..., Desk]


def test_lines_that_fit_nothing_hold_what_is_missing(make_desk: MakeDesk) -> None:
    """A gateway that changes custom ids: the paid answers are kept as they came, and their items are not sent again."""
    desk = make_desk()
    desk.start("submit", desk.items(3))
    changed = [line("I2", [TEXT]), line("I3", {"text": "odd"})]
    answering(desk, "batches.results", "\n".join([line("i1", [TEXT]), *changed]) + "\n")
    for _ in range(4):
        desk.simulator.advance(LATER)
        desk("poll", "--resubmit")
    assert desk.creates() == 1
    assert desk.status()["counts"]["open"] == 2
    needs = desk.status()["needs"]
    assert "2 result lines fit no request of it" in needs
    assert "resubmit r --abandon 1" in needs
    kept = (desk.folder / "state" / "r" / "quarantine-1.jsonl").read_bytes().splitlines()
    assert sorted(json.loads(entry)["line"] for entry in kept) == sorted(changed)
    desk.simulator.set_faults({})
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 3


def test_a_failed_download_is_no_look_at_the_results(make_desk: MakeDesk) -> None:
    """Late lines get their three looks after an outage too (field report 107)."""
    desk = make_desk()
    desk.start("submit", desk.items(2))
    down = {"endpoint": "anthropic.batches.results", "action": "status", "status": 503}
    desk.simulator.set_faults({"calls": [down]})
    for _ in range(3):
        desk.simulator.advance(LATER)
        desk("poll", "--resubmit")
    answering(desk, "batches.results", line("i1", [TEXT]) + "\n")
    assert poll_at(desk, 1.0) == 0
    assert desk.status()["counts"] == {"planned": 2, "succeeded": 1, "failed": 0, "open": 1}
    desk.simulator.set_faults({})
    desk("poll", "--resubmit")
    assert desk.balanced()["counts"]["succeeded"] == 2
    assert desk.creates() == 1


def test_results_that_seem_cut_are_given_more_time(make_desk: MakeDesk) -> None:
    """Half of the answers the provider counts are not in its results: ten looks, not three, before they go again."""
    desk = make_desk()
    desk.start("submit", desk.items(6))
    answering(desk, "batches.results", "".join(line(f"i{number}", [TEXT]) + "\n" for number in (1, 2, 3)))
    desk.simulator.advance(LATER)
    assert [poll_at(desk, 1.0 + number) for number in range(9)] == [0] * 9
    assert desk.status()["counts"]["open"] == 3
    desk.simulator.set_faults({})
    desk("poll", "--resubmit")
    assert desk.balanced()["counts"]["succeeded"] == 6
    assert desk.creates() == 1


def test_answers_counted_and_not_named_are_waited_for(make_desk: MakeDesk) -> None:
    """An error file alone does not say what became of the requests that the counts call completed."""
    desk = make_desk("openai", {"items": [{"custom_id": "i1", "kind": "invalid_request"}]})
    desk.start("submit", desk.items(3))
    desk.simulator.advance(LATER)
    id_ = batch_id(desk)
    whole = ended_batch(desk, id_)
    answering(desk, "batches.retrieve", json.dumps(whole | {"output_file_id": None}))
    for _ in range(11):
        desk("poll", "--resubmit")
    assert desk.creates() == 1
    assert desk.status()["counts"]["open"] == 2
    assert "--abandon 1" in desk.status()["needs"]
    desk.simulator.set_faults({})
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 2


def guessed(desk: Desk, requests: int) -> None:
    """A run whose create never arrived, with somebody else's batch of the same size taken for it."""
    desk.start("submit", desk.items(requests))
    stranger(desk, requests)
    desk("poll")
    desk.simulator.advance(LATER)


LOST = {"endpoint": "anthropic.batches.create", "nth": 1, "action": "drop", "when": "before"}


def test_nothing_confirms_a_guess_but_its_ids(make_desk: MakeDesk) -> None:
    """A batch found by count and time, without a line in its results, is neither ours nor another's."""
    desk = make_desk(faults={"calls": [LOST]})
    guessed(desk, 3)
    answering(desk, "batches.results", "")
    desk("poll", "--resubmit")
    assert not events(desk, "batch.disowned")
    answering(desk, "batches.results", line("x1", [TEXT]) + "\n")
    assert "adopt r --absent 1" in desk("poll", "--resubmit", code=8).err
    assert len(events(desk, "batch.disowned")) == 1
    assert desk.status()["counts"]["open"] == 3


def test_a_guess_without_lines_asks_for_a_person(make_desk: MakeDesk) -> None:
    """It is asked again and again, and then told."""
    desk = make_desk(faults={"calls": [LOST]})
    guessed(desk, 3)
    answering(desk, "batches.results", "")
    for _ in range(10):
        desk("poll", "--resubmit")
    assert "nothing in its results tells whether it is ours" in desk.status()["needs"]
    assert desk.creates() == 2  # the lost one, and the other account's


def test_a_refused_adoption_changes_nothing(make_desk: MakeDesk) -> None:
    """The named batch is another's already: what waits still waits, and is sent."""
    desk = make_desk()
    desk.start("submit", desk.items(4), "--max-requests", "2", "--max-queued-requests", "2")
    before = desk("batches", "r", "--json").out
    assert "is a batch of run r already" in desk("adopt", "r", batch_id(desk), "--batch", "2", code=2).err
    assert desk("batches", "r", "--json").out == before


def test_a_failed_batch_named_by_hand_proves_nothing(make_desk: MakeDesk) -> None:
    """It was refused whole, and is perhaps not the one: the create is unknown again, and the lists decide."""
    lost = {"endpoint": "openai.batches.create", "action": "drop", "when": "after", "times": 1}
    desk = make_desk("openai", {"calls": [lost]})
    desk.start("submit", desk.items(2))
    failed: dict[str, Any] = {"id": "batch_other", "status": "failed", "request_counts": {"total": 0}}
    answering(desk, "batches.retrieve", json.dumps(failed))
    desk("adopt", "r", "batch_other")
    desk("poll", "--resubmit", code=8)
    assert desk.creates() == 1
    desk.simulator.set_faults({})
    for _ in range(2):
        desk.simulator.advance(LATER)
        desk("poll", code=None)
    assert desk.balanced()["counts"]["succeeded"] == 2
    assert desk.creates() == 1


def test_a_batch_with_another_key_is_not_adopted(make_desk: MakeDesk) -> None:
    """OpenAI tells whose it is: what carries another run's key is refused, whatever a person says."""
    lost = {"endpoint": "openai.batches.create", "action": "drop", "when": "after", "times": 1}
    desk = make_desk("openai", {"calls": [lost]})
    desk.start("submit", desk.items(2))
    other = Desk(desk.folder / "other", desk.simulator, "openai")
    other.folder.mkdir()
    other.start("submit", other.items([{"id": "i1", "text": "other"}, {"id": "i2", "text": "others"}]))
    assert "carries the key of another batch" in desk("adopt", "r", batch_id(other), code=2).err
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 2


def ended_batch(desk: Desk, id_: str) -> dict[str, Any]:
    """The batch as the provider tells it."""
    request = urllib.request.Request(f"{desk.simulator.url}/v1/batches/{id_}", headers={"authorization": "Bearer k"})
    with urllib.request.urlopen(request) as answer:
        batch: dict[str, Any] = json.loads(answer.read())
        return batch
