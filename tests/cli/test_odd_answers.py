"""Servers that answer oddly: what may have been paid for is never bought again, and no run stops another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from batchctl.core.errors import BatchctlError
from batchctl.runs.context import Context
from batchctl.runs.held import HeldRun
from batchctl.runs.several import Several
from batchctl.state.store import Store
from tests.cli.passes import LATER, pass_until_quiet, poll_at
from tests.conftest import Desk

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])
TEXT = {"type": "text", "text": "yes"}


def answering(desk: Desk, endpoint: str, body: str) -> None:
    """Have one endpoint answer this from now on."""
    rule = {"endpoint": f"{desk.provider}.{endpoint}", "action": "status", "status": 200, "body": body}
    desk.simulator.set_faults({"calls": [rule]})


def batch_id(desk: Desk) -> str:
    """The provider's id of the run's first batch."""
    return str(desk("batches", "r", "--json").rows[0]["batch_id"])


def line(custom_id: str, content: Any) -> str:
    """A result line of Anthropic."""
    return json.dumps({"custom_id": custom_id, "result": {"type": "succeeded", "message": {"content": content}}})


def test_an_answer_that_stays_unreadable_is_not_bought_again(make_desk: MakeDesk) -> None:
    """Its item fails with what came, and is answered after all when that can be read."""
    desk = make_desk()
    desk.start("submit", desk.items(3))
    torn = line("i3", "maybe")[:-4]
    lines = [line("i1", [TEXT]), line("i2", {"text": "yes"}), torn]
    answering(desk, "batches.results", "\n".join(lines) + "\n")
    for _ in range(2):
        desk.simulator.advance(LATER)
        desk("poll", "--resubmit")
        assert desk.status()["counts"] == {"planned": 3, "succeeded": 1, "failed": 0, "open": 2}
    desk("poll", "--resubmit")
    failed = {row["id"]: (row["outcome"], row["error"]["type"], row["text"]) for row in desk.lines("errors.jsonl")}
    unreadable = ("invalid", "unreadable_answer")
    assert failed == {"i2": (*unreadable, lines[1]), "i3": (*unreadable, torn)}
    assert desk.balanced()["state"] == "done"
    assert desk.creates() == 1


def test_a_line_that_may_be_anybodys_holds_what_is_missing(make_desk: MakeDesk) -> None:
    """It may be the answer of the item without a line: a person is asked, and a later look may read it."""
    desk = make_desk()
    desk.start("submit", desk.items(2))
    answering(desk, "batches.results", line("i1", [TEXT]) + "\nnonsense\n")
    for _ in range(4):
        desk.simulator.advance(LATER)
        desk("poll", "--resubmit")
    assert desk.status()["counts"]["open"] == 1
    assert desk.creates() == 1
    needs = desk.status()["needs"]
    assert "1 result line can neither be read" in needs
    assert "resubmit r --abandon 1" in needs
    desk.simulator.set_faults({})
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 2


def test_an_answer_that_becomes_readable_is_taken(make_desk: MakeDesk) -> None:
    """A download that was torn on its way is whole at the next look."""
    desk = make_desk()
    desk.start("submit", desk.items(2))
    answering(desk, "batches.results", line("i1", [TEXT]) + "\n" + line("i2", [TEXT])[:-4])
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.status()["counts"]["succeeded"] == 1
    desk.simulator.set_faults({})
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 2
    assert desk.creates() == 1


COUNTED = {"total": 3, "completed": 3, "failed": 0}
FULL = {"data": [{"code": "token_limit_exceeded", "message": "Enqueued token limit reached", "line": None}]}


@pytest.mark.parametrize(
    "odd",
    [
        {"status": "completed", "request_counts": None},
        {"status": "completed", "request_counts": {"total": 3, "completed": 0, "failed": 0}},
        {"status": "expired", "request_counts": None},
        {"status": "failed", "request_counts": COUNTED, "errors": FULL},
    ],
    ids=str,
)
def test_an_end_that_explains_nothing_waits_for_a_person(make_desk: MakeDesk, odd: dict[str, Any]) -> None:
    """It names no files and does not say that nothing was answered: nothing is sent, and the answers may still come."""
    desk = make_desk("openai")
    desk.start("submit", desk.items(3))
    desk.simulator.advance(LATER)
    id_ = batch_id(desk)
    answering(desk, "batches.retrieve", json.dumps({"id": id_} | odd))
    for _ in range(11):
        desk("poll", "--resubmit")
    assert desk.creates() == 1
    assert "--abandon 1" in desk.status()["needs"]
    desk.simulator.set_faults({})
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 3
    assert desk.status()["needs"] is None


def test_an_end_that_turns_into_a_refusal_is_no_reason_to_send_again(make_desk: MakeDesk) -> None:
    """First completed, then failed for lack of room: it may have been answered."""
    desk = make_desk("openai")
    desk.start("submit", desk.items(3))
    desk.simulator.advance(LATER)
    id_ = batch_id(desk)
    answering(desk, "batches.retrieve", json.dumps({"id": id_, "status": "completed"}))
    desk("poll", "--resubmit")
    answering(desk, "batches.retrieve", json.dumps({"id": id_, "status": "failed", "errors": FULL}))
    for _ in range(11):
        desk("poll", "--resubmit")
    assert desk.creates() == 1
    assert "--abandon 1" in desk.status()["needs"]


@PROVIDERS
def test_a_list_that_is_never_readable_asks_for_a_person(make_desk: MakeDesk, provider: str) -> None:
    """Ten looks in a row at a list nobody can read: exit 8, with a way out that works."""
    create = {"endpoint": f"{provider}.batches.create", "nth": 1, "action": "drop", "when": "before"}
    listing = {"endpoint": f"{provider}.batches.list", "action": "status", "status": 200, "body": '{"data": null}'}
    desk = make_desk(provider, {"calls": [create, listing]})
    desk.start("submit", desk.items(2), "--tag-ids")
    codes = [desk("poll", code=None).code for _ in range(12)]
    assert codes == [0] * 9 + [8] * 3
    assert "adopt r --absent 1" in desk.status()["needs"]
    desk("adopt", "r", "--absent", "1")
    desk.simulator.set_faults({})
    pass_until_quiet(desk)
    assert desk.balanced()["counts"]["succeeded"] == 2


@PROVIDERS
def test_an_outage_of_the_list_is_told_and_waited_for(make_desk: MakeDesk, provider: str) -> None:
    """A server that is down says nothing about the create; that it has been down for long is said."""
    create = {"endpoint": f"{provider}.batches.create", "nth": 1, "action": "drop", "when": "after"}
    listing = {"endpoint": f"{provider}.batches.list", "action": "status", "status": 503}
    desk = make_desk(provider, {"calls": [create, listing]})
    desk.start("submit", desk.items(2), "--tag-ids")
    for _ in range(11):
        desk("poll")
    assert "10 looks in a row" in desk.status()["needs"] or "11 looks in a row" in desk.status()["needs"]
    desk.simulator.set_faults({})
    pass_until_quiet(desk)
    assert desk.balanced()["counts"]["succeeded"] == 2
    assert desk.status()["needs"] is None
    assert desk.creates() == 1


@PROVIDERS
def test_a_person_settles_a_create_where_there_is_no_list(make_desk: MakeDesk, provider: str) -> None:
    """A server whose list is not found: the way out that is offered works."""
    create = {"endpoint": f"{provider}.batches.create", "nth": 1, "action": "drop", "when": "before"}
    listing = {"endpoint": f"{provider}.batches.list", "action": "status", "status": 404}
    desk = make_desk(provider, {"calls": [create, listing]})
    desk.start("submit", desk.items(2))
    assert "adopt r --absent 1" in desk("poll", code=8).err
    desk("adopt", "r", "--absent", "1")
    pass_until_quiet(desk)
    assert desk.balanced()["counts"]["succeeded"] == 2
    assert desk.creates() == 2


def test_nobody_elses_batch_is_taken_for_a_lost_one(make_desk: MakeDesk) -> None:
    """Two state files, one account, the same ids, two prompts: the second's lost create is not the first's batch."""
    desk = make_desk()
    items = desk.items(3)
    desk.start("submit", items)
    desk.simulator.advance(LATER)
    lost = {"endpoint": "anthropic.batches.create", "action": "drop", "when": "before", "nth": 1}
    desk.simulator.set_faults({"calls": [lost]})
    other = Desk(desk.folder / "other", desk.simulator)
    other.folder.mkdir()
    other.start("submit", items, "--system", desk.prompt)
    for hours in range(6):
        poll_at(other, 1.0 + hours)
        desk.simulator.advance(LATER)
    for one in (desk, other):
        pass_until_quiet(one)
        assert one.balanced()["counts"]["succeeded"] == 3
    assert batch_id(desk) != batch_id(other)
    assert desk.creates() == 3


def test_nothing_is_sent_while_its_create_could_not_be_found(make_desk: MakeDesk) -> None:
    """Without the list before it, a lost create could not be told from another's: it waits, says so, and goes on."""
    listing = {"endpoint": "anthropic.batches.list", "action": "status", "status": 503}
    desk = make_desk(faults={"calls": [listing]})
    items = desk.items(2)
    assert "--tag-ids needs no list" in desk.start("submit", items).err
    desk("poll")
    assert desk.creates() == 0
    assert "list cannot be read" in desk.status()["needs"]
    desk.start("submit", desk.items([{"id": "tagged", "text": "needs none"}], "b.jsonl"), "--tag-ids", "--out",
               str(desk.folder / "tagged"), name="t")  # fmt: skip
    assert desk.creates() == 1
    desk.simulator.set_faults({})
    pass_until_quiet(desk)
    assert desk.balanced()["counts"]["succeeded"] == 2
    assert desk.status()["needs"] is None


def test_a_link_to_the_state_file_is_the_state_file(make_desk: MakeDesk) -> None:
    """Under either name it has one folder and one lock."""
    desk = make_desk()
    desk.start("submit", desk.items(2))
    (desk.folder / "elsewhere").mkdir()
    link = desk.folder / "elsewhere" / "link.db"
    link.symlink_to(desk.folder / "state.db")
    desk.simulator.advance(LATER)
    desk("--state", str(link), "poll")
    assert desk.balanced()["counts"]["succeeded"] == 2
    assert list(link.parent.iterdir()) == [link]


@pytest.mark.parametrize("error", [OverflowError("too large"), OSError(28, "No space left on device")], ids=str)
def test_a_fault_in_one_run_stops_no_other(make_desk: MakeDesk, error: Exception) -> None:
    """What nobody expected befalls one run of several: the others have their turn, and it is told at the end."""
    desk = make_desk()
    desk.start("submit", desk.items(2), "--out", str(desk.folder / "out-a"), name="a")
    desk.start("submit", desk.items([{"id": "one", "text": "another"}]))
    served: list[str] = []

    async def work(run: HeldRun) -> None:
        if run.name == "a":
            raise error
        served.append(run.name)

    async def each(names: list[str]) -> None:
        ctx = Context(desk.folder / "state.db", lambda _: None)
        with Store.open(ctx.state_path) as store, Several(ctx, store, names) as several:
            await several.each(work)
            await several.each(work)

    with pytest.raises(BatchctlError) as caught:
        asyncio.run(each([]))
    assert "run a: " in caught.value.message
    assert caught.value.exit_code == 1
    assert served == ["r", "r"]
    with pytest.raises(type(error)):
        asyncio.run(each(["a"]))
