"""The address, key or project changes while a batch is in doubt or under way: nothing is bought again for that."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.passes import LATER
from tests.conftest import Desk

MakeDesk = Callable[..., Desk]
Env = pytest.MonkeyPatch
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])


def lost(provider: str, when: str) -> dict[str, Any]:
    """The first create's answer is lost, before or after the provider took it."""
    rule = {"endpoint": f"{provider}.batches.create", "action": "drop", "when": when, "nth": 1}
    return {"calls": [rule]}


def use(env: Env, desk: Desk, key: str | None = None) -> None:
    """Point the provider's own variables at this desk's simulator, with this key."""
    variable = desk.provider.upper()
    env.setenv(f"{variable}_API_KEY", key or f"test-key-{desk.provider}")
    url = desk.simulator.anthropic_base_url if desk.provider == "anthropic" else desk.simulator.openai_base_url
    env.setenv(f"{variable}_BASE_URL", url)


def in_doubt(desk: Desk) -> str:
    """Poll often enough to believe in an absence; the sentence about what is needed."""
    for _ in range(4):
        desk("poll", code=8)
    assert [row["state"] for row in desk("batches", "r", "--json").rows] == ["submitting"]
    return str(desk.status()["needs"])


@PROVIDERS
def test_an_absence_under_another_key_proves_nothing(make_desk: MakeDesk, monkeypatch: Env, provider: str) -> None:
    """The create never arrived, but the key in use now could not see it: exit 8, nothing sent, until it is set back."""
    desk = make_desk(provider, lost(provider, "before"), speed=36_000)
    desk.start("submit", desk.items(2), "--settle-after", "0.01s")
    use(monkeypatch, desk, "test-key-rotated")
    needs = in_doubt(desk)
    assert "with another key" in needs
    assert "adopt r --absent 1" in needs
    assert desk.creates() == 1
    use(monkeypatch, desk)
    desk("poll", "--wait", "--resubmit")
    assert desk.balanced()["counts"]["succeeded"] == 2
    assert desk.creates() == 2


@PROVIDERS
def test_a_person_may_say_that_a_create_elsewhere_never_was(
    make_desk: MakeDesk, monkeypatch: Env, provider: str
) -> None:
    """Where the old account is gone for good, `adopt --absent` sends the batch in the new one."""
    other = make_desk(provider)
    desk = make_desk(provider, lost(provider, "before"))
    desk.start("submit", desk.items(2))
    use(monkeypatch, other)
    assert desk.simulator.url in in_doubt(desk)
    desk("adopt", "r", "--absent", "1")
    desk("poll")
    other.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 2
    assert (desk.creates(), other.creates()) == (1, 1)


@PROVIDERS
def test_a_create_at_another_address_is_not_sent_again(make_desk: MakeDesk, monkeypatch: Env, provider: str) -> None:
    """It was taken at the first address: the second one does not list it, and gets nothing."""
    other = make_desk(provider)
    desk = make_desk(provider, lost(provider, "after"), speed=36_000)
    desk.start("submit", desk.items(2), "--settle-after", "0.01s")
    use(monkeypatch, other)
    needs = in_doubt(desk)
    assert desk.simulator.url in needs
    assert other.simulator.url in needs
    assert "test-key" not in needs
    use(monkeypatch, desk)
    desk("poll", "--wait", "--resubmit")
    assert desk.balanced()["counts"]["succeeded"] == 2
    assert (desk.creates(), other.creates()) == (1, 0)


@pytest.mark.slow
@PROVIDERS
def test_an_older_state_file_on_another_account(make_desk: MakeDesk, monkeypatch: Env, provider: str) -> None:
    """A copy from before the create is put back, and the address is another one: both are seen, nothing is sent."""
    other = make_desk(provider)
    refused = {"endpoint": f"{provider}.batches.create", "action": "status", "status": 429, "times": 1}
    desk = make_desk(provider, {"calls": [refused]})
    desk.start("submit", desk.items(2), "--interval", "0.001s")
    state = desk.folder / "state.db"
    with sqlite3.connect(state) as database, sqlite3.connect(desk.folder / "copy.db") as copy:
        database.backup(copy)
    database.close()
    copy.close()
    desk("poll", "--wait", "--wait-limit", "0.3s", code=4)
    assert desk.creates() == 2
    for side in ("-wal", "-shm"):
        state.with_name(state.name + side).unlink(missing_ok=True)
    (desk.folder / "copy.db").replace(state)
    use(monkeypatch, other)
    assert desk.simulator.url in in_doubt(desk)
    assert other.creates() == 0
    use(monkeypatch, desk)
    desk.simulator.advance(LATER)
    desk("poll", "--wait")
    assert desk.balanced()["counts"]["succeeded"] == 2
    assert desk.creates() == 2


@PROVIDERS
def test_a_wait_ends_where_only_the_old_account_can_tell(make_desk: MakeDesk, monkeypatch: Env, provider: str) -> None:
    """`poll --wait` does not wait for ever for what it cannot look up, be its create in doubt or not."""
    other = make_desk(provider)
    for name, faults, code, said in (("lost", lost(provider, "after"), 8, "--absent 1"), ("sent", {}, 4, "set that")):
        desk = make_desk(provider, faults)
        desk.start("submit", desk.items(2), "--out", str(desk.folder / name), name=name)
        use(monkeypatch, other)
        assert said in desk("poll", "--wait", name, code=code).err


@PROVIDERS
def test_a_key_is_replaced_by_another_of_its_workspace(make_desk: MakeDesk, monkeypatch: Env, provider: str) -> None:
    """What is found goes on: known batches, and the lost one by its key or, once it has ended, by its custom ids."""
    desk = make_desk(provider, {"calls": [{**lost(provider, "after")["calls"][0], "nth": 2}]})
    desk.start("submit", desk.items(4), "--max-requests", "2")
    use(monkeypatch, desk, "test-key-rotated")
    if provider == "anthropic":
        desk("poll", code=8)
    desk.simulator.advance(LATER)
    desk("poll", "--resubmit", code=None)
    for _ in range(3):  # the next look at a create in doubt is due after the interval
        desk("poll", "--wait", "--resubmit", code=None)
    assert desk.balanced()["counts"]["succeeded"] == 4
    assert desk.creates() == 2


@PROVIDERS
def test_a_batch_not_found_elsewhere_is_not_lost(make_desk: MakeDesk, monkeypatch: Env, provider: str) -> None:
    """A 404 at another address says which address knows the batch; giving it up is never offered for it."""
    other = make_desk(provider)
    desk = make_desk(provider)
    desk.start("submit", desk.items(2))
    use(monkeypatch, other)
    for _ in range(10):
        ran = desk("poll")
        assert f"sent to {desk.simulator.url}" in ran.err
    needs = desk.status()["needs"]
    assert "set that back" in needs
    assert "--abandon" not in needs
    use(monkeypatch, desk)
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 2
    assert desk.status()["needs"] is None
    assert (desk.creates(), other.creates()) == (1, 0)


def test_an_input_file_is_deleted_where_it_is(make_desk: MakeDesk, monkeypatch: Env) -> None:
    """A 404 at another address is not its end: the file is deleted once that is set back."""
    other = make_desk("openai")
    refused = {"endpoint": "openai.files.delete", "action": "status", "status": 503, "times": 2}
    desk = make_desk("openai", {"calls": [refused], "batches": [{"nth": 2, "duration": 2 * LATER}]})
    desk.start("submit", desk.items(2), "--max-requests", "1")
    desk.simulator.advance(LATER)
    desk("poll")
    use(monkeypatch, other)
    desk("poll")
    use(monkeypatch, desk)
    desk.simulator.advance(2 * LATER)
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 2
    assert desk.simulator.stats()["calls"]["openai.files.delete"] == 4
    assert "openai.files.delete" not in other.simulator.stats()["calls"]


@pytest.mark.parametrize(
    ("provider", "variable", "value"),
    [
        ("openai", "OPENAI_PROJECT_ID", "proj-2"),
        ("openai", "OPENAI_ORG_ID", "org-2"),
        ("anthropic", "ANTHROPIC_CUSTOM_HEADERS", "anthropic-workspace-id: wrkspc-2"),
    ],
)
def test_another_project_is_another_account(
    make_desk: MakeDesk, monkeypatch: Env, provider: str, variable: str, value: str
) -> None:
    """Lists are those of one project, organization or workspace."""
    desk = make_desk(provider, lost(provider, "before"))
    desk.start("submit", desk.items(1))
    monkeypatch.setenv(variable, value)
    assert value.rpartition(" ")[2] in in_doubt(desk)
    assert desk.creates() == 1


@PROVIDERS
def test_the_state_file_keeps_no_key(make_desk: MakeDesk, provider: str) -> None:
    """A hint of 12 hex digits, salted by the run, tells keys apart; two runs with one key have different ones."""
    desk = make_desk(provider)
    url = desk.simulator.anthropic_base_url if provider == "anthropic" else desk.simulator.openai_base_url
    for name in ("one", "two"):
        desk.start("submit", desk.items(1), "--out", str(desk.folder / name), name=name)
    with sqlite3.connect(desk.folder / "state.db") as database:
        rows = database.execute("SELECT address, key_hint FROM batches").fetchall()
    database.close()
    assert {address for address, _ in rows} == {url}
    hints = {hint for _, hint in rows}
    assert len(hints) == 2
    assert all(len(hint) == 12 and set(hint) <= set("0123456789abcdef") for hint in hints)
    data = b"".join(path.read_bytes() for path in desk.folder.rglob("*") if path.is_file())
    assert b"test-key" not in data


@PROVIDERS
def test_a_base_url_with_a_password_is_refused(make_desk: MakeDesk, monkeypatch: Env, provider: str) -> None:
    """It would stand in messages and be sent beside the key: exit 2, also where a run goes on, which loses nothing."""
    desk = make_desk(provider)
    desk.start("submit", desk.items(1))
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", desk.simulator.url.replace("//", "//user:word@"))
    ran = desk("poll", code=2)
    assert "holds a user" in ran.err
    assert "word@" not in ran.err
    use(monkeypatch, desk)
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 1
