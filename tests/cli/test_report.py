"""The report of a run: what stands on the page, what cannot be on it, and where it is written."""

from __future__ import annotations

import hashlib
import json
import stat
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

from batchctl.core.errors import StorageError
from batchctl.core.model import Lane, Outcome
from batchctl.files.lock import RunLock
from batchctl.runs.report import LONGEST_TEXT, MOST_ROWS, build
from batchctl.state.rows import Failure, Success
from batchctl.state.store import Store
from tests.conftest import Desk, run_command
from tests.state import making

MakeDesk = Callable[..., Desk]
NOW = datetime(2026, 2, 1, 6, 0, tzinfo=UTC)
ALLOWED = (
    "html head meta title style body main header section h1 h2 p dl div dt dd table caption thead tbody tr th td"
    " code pre details summary ul li svg g rect line path text"
)
HOSTILE = '</title></style></svg><script>alert(1)</script><img src=x onerror="alert(2)">&lt;\'"\x1b[31m\u202egpj'


class Page(HTMLParser):
    """A page as a browser reads it: its elements, their attributes, and the text of each."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element and what it carries."""
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Elements close in the order they were opened."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note a text with its element."""
        self.texts.append((self.open[-1] if self.open else "", data))

    def text(self, *tags: str) -> str:
        """The text of the page, or of these elements."""
        return "|".join(data for tag, data in self.texts if not tags or tag in tags)


def page_of(desk: Desk, *more: str) -> Page:
    """The report of run `r`, read from standard output."""
    return Page(desk("report", "r", *more, "--out", "-").out)


def harmless(page: Page) -> None:
    """No element but ours, nothing that runs, nothing that is fetched, and a policy that fits the style."""
    assert set(page.tags) <= set(ALLOWED.split())
    names = {name for _, name, _ in page.attributes}
    assert not names & {"src", "href", "style", "action", "xlink:href", "srcset", "background"}
    assert not any(name.startswith("on") for name in names)
    [style] = [data for tag, data in page.texts if tag == "style"]
    assert "url(" not in style
    assert "@import" not in style
    policy = next(value for _, name, value in page.attributes if name == "content" and "default-src" in value)
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in policy


def planned(store: Store, folder: Path, batches: int = 2, **settings: object) -> int:
    """An open run of one item a batch, every text in it hostile."""
    run_id = store.runs.create(
        "r", "token", "openai", HOSTILE, HOSTILE, {"prompt": HOSTILE, **settings}, HOSTILE, str(folder), making.NOW
    )
    store.items.add(run_id, [making.new_item(number, number) for number in range(1, batches + 1)])
    for number in range(1, batches + 1):
        making.add_waiting(store, run_id, number, [number])
    inputs = [{"path": HOSTILE, "bytes": 5, "sha256": HOSTILE, "modified_ns": 1}]
    store.runs.finish_plan(run_id, planned=batches, inputs=inputs, at=making.NOW)
    return run_id


def test_a_finished_run(make_desk: MakeDesk) -> None:
    """The page has the run's counts, batches, errors, settings and files; it is private and written whole."""
    faults = {"items": [{"custom_id": "i2", "kind": "invalid_request"}], "batches": [{"nth": 2, "expire": 0.5}]}
    desk = make_desk(faults=faults)
    desk.start("submit", desk.items(20), "--max-requests", "10")
    for _ in range(2):
        desk.simulator.advance(25 * 3600)
        desk("poll", "--resubmit")
    path = Path(desk("report", "r").out.strip())
    assert path == desk.folder / "out" / "report.html"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "errors.jsonl", "manifest.json", "report.html", "results.jsonl",
    ]  # fmt: skip
    page = Page(path.read_text("utf-8"))
    harmless(page)
    assert page.text("h1") == "r: done"
    assert page.text("dd").startswith("20|19|1|0|$")
    manifest = json.loads((desk.folder / "out" / "manifest.json").read_bytes())
    codes = page.text("code")
    for batch in manifest["batches"]:
        assert batch["batch_id"] in codes
        assert any(batch["batch_id"] in data for tag, data in page.texts if tag == "title")
    assert manifest["files"]["results"]["sha256"] in codes
    assert manifest["files"]["errors"]["sha256"] in codes
    assert manifest["inputs"][0]["sha256"] in codes
    assert "Answer this: {{ text }}" in page.text("pre")
    assert "simulated invalid request" in page.text("td")
    assert page.tags.count("svg") >= len({"settled", "batches", "lengths"})


def test_hostile_texts_are_only_texts(tmp_path: Path) -> None:
    """Markup in ids, errors, models and names is shown and cannot run; control characters are spelt out."""
    with Store.open(tmp_path / "state.db") as store:
        run_id = planned(store, tmp_path)
        for number in (1, 2):
            store.batches.intend(run_id, number, f"key-{number}", making.NOW)
            making.create(store, run_id, number, f"{HOSTILE}{number}")
        answer = {"usage": {"output_tokens": 7}, "cost_usd": 0.5, "lane": HOSTILE, "round": 0}
        line = json.dumps(answer | {"id": "1", "stop_reason": HOSTILE, "model": HOSTILE}) + "\n"
        (tmp_path / "results.jsonl").write_text(line, "utf-8")
        (tmp_path / "errors.jsonl").write_text("{}\n", "utf-8")
        success = Success(1, 0, len(line) - 1)
        store.results.record(run_id, 1, Lane.BATCH, [success], [], at=making.LATER, results_end=len(line))
        failure = Failure(2, Outcome.ERRORED, HOSTILE, HOSTILE, HOSTILE, final=True, out_offset=0, out_length=2)
        store.results.record(run_id, 2, Lane.BATCH, [], [failure], at=making.LATER, errors_end=3)
        store.runs.set_needs(run_id, HOSTILE, making.LATER)
        page = Page(build(store, "r", NOW).decode())
    harmless(page)
    spelt = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert spelt in page.text("pre")
    assert spelt in page.text("p")
    assert page.text("th").count(spelt) >= len({"stop reason", "model", "lane", "input"})
    assert page.text("td").count(spelt) == len({"type", "code", "message"})
    assert page.text("code").count(spelt) == len({"batch 1", "batch 2", "fingerprint", "digest of the input"})


def test_a_run_with_everything_open(make_desk: MakeDesk) -> None:
    """Before any answer the page says so, and nothing is written for `--out -`."""
    desk = make_desk()
    desk.start("submit", desk.items(4), "--max-requests", "2", "--max-queued-requests", "2")
    page = page_of(desk)
    harmless(page)
    assert page.text("dd").startswith("4|0|0|4|$0.0000|0|0|1|")
    assert {"in progress: 1", "waiting: 1"} <= set(page.text("li").split("|"))
    assert not (desk.folder / "out" / "report.html").exists()


def test_it_reads_only(make_desk: MakeDesk) -> None:
    """It works while another process holds the run, and leaves the state as it was."""
    desk = make_desk()
    desk.start("submit", desk.items(2))
    before = (desk.folder / "state.db").read_bytes()
    with RunLock(desk.folder / "state" / "r" / "lock"):
        page_of(desk)
    assert (desk.folder / "state.db").read_bytes() == before


def test_it_creates_no_state(tmp_path: Path) -> None:
    """Without a state file there is nothing to report, and none is made."""
    ran = run_command("--state", str(tmp_path / "state.db"), "report", "r")
    assert ran.code == 2
    assert list(tmp_path.iterdir()) == []


def test_where_it_is_written(make_desk: MakeDesk) -> None:
    """A file, a folder or a name of its own; never over a file that is no page."""
    desk = make_desk()
    items = desk.items(2)
    desk.start("submit", items)
    new = desk.folder / "new" / "night.html"
    assert desk("report", "r", "--out", str(new)).out == f"{new}\n"
    assert desk("report", "r", "--out", str(new.parent)).out == f"{new.parent / 'report.html'}\n"
    assert desk("report", "r", "--out", str(desk.folder / "out")).out == f"{desk.folder / 'out' / 'report.html'}\n"
    before = Path(items).read_bytes()
    refused = desk("report", "r", "--out", items, code=2)
    assert "items.jsonl is no name of a page" in refused.err
    assert Path(items).read_bytes() == before
    assert "no run 'other'" in desk("report", "other", code=2).err


def test_a_run_on_an_object_store(make_desk: MakeDesk) -> None:
    """The page goes where the run's files go."""
    import fsspec

    desk = make_desk()
    desk("submit", desk.items(2), "--provider", "anthropic", "--model", "claude-sonnet-4-5", "--prompt", desk.prompt,
         "--name", "r", "--out", "memory://bucket/r")  # fmt: skip
    assert desk("report", "r").out == "memory://bucket/r/report.html\n"
    with fsspec.open("memory://bucket/r/report.html", "rb") as file:
        harmless(Page(file.read().decode()))


def test_long_prompts_are_cut_and_credentials_left_out(tmp_path: Path) -> None:
    """No more than 2,000 characters of a prompt, and no credentials of an address."""
    with Store.open(tmp_path / "state.db") as store:
        planned(store, tmp_path, prompt="é" * 5_000, base_url="https://ada:secret@host/v1")
        page = Page(build(store, "r", NOW).decode())
    settings = page.text("pre")
    assert "é" * LONGEST_TEXT + "… (5,000 characters in all)" in settings
    assert "é" * (LONGEST_TEXT + 1) not in settings
    assert "https://…@host/v1" in settings
    assert "secret" not in settings


def test_a_run_of_many_batches_stays_a_page(tmp_path: Path) -> None:
    """The latest batches are drawn and listed; how many are left out is said."""
    many = MOST_ROWS + 300
    with Store.open(tmp_path / "state.db") as store:
        with store.transaction(durable=True):
            planned(store, tmp_path, batches=many)
        page = Page(build(store, "r", NOW).decode())
    assert "Not shown: 300 earlier batches; `batchctl batches r` has them all." in page.text("p")
    assert f"waiting: {many}" in page.text("li")
    assert page.tags.count("tr") < MOST_ROWS + 30


def test_a_changed_results_file_is_said(tmp_path: Path) -> None:
    """Lines that are not what was written are counted and named, not passed over."""
    with Store.open(tmp_path / "state.db") as store:
        run_id = planned(store, tmp_path)
        (tmp_path / "results.jsonl").write_bytes(b"#\n#\n")
        store.results.set_ends(run_id, 4, 0)
        page = Page(build(store, "r", NOW).decode())
    assert "2 lines of results.jsonl cannot be read" in page.text("p")


def test_a_lost_results_file_is_said(tmp_path: Path) -> None:
    """No page is made of a run whose results are gone, as if it had none."""
    with Store.open(tmp_path / "state.db") as store:
        store.results.set_ends(planned(store, tmp_path), 4, 0)
    ran = run_command("--state", str(tmp_path / "state.db"), "report", "r")
    assert ran.code == StorageError.exit_code
    assert "results.jsonl is missing" in ran.err


def test_a_clock_set_back_keeps_the_plots_in_their_frame(tmp_path: Path) -> None:
    """A batch sent before its run began, by the clock, is drawn at the start."""
    with Store.open(tmp_path / "state.db") as store:
        run_id = planned(store, tmp_path)
        store.batches.intend(run_id, 1, "key", making.NOW - timedelta(hours=2))
        store.batches.created(
            run_id, 1, batch_id="b", status="validating", expires_at=NOW, certain=True,
            at=making.NOW - timedelta(hours=2), next_check_at=NOW,
        )  # fmt: skip
        page = Page(build(store, "r", making.NOW - timedelta(hours=1)).decode())
    places = [float(value) for tag, name, value in page.attributes if tag == "rect" and name == "x"]
    assert places
    assert all(0 <= place <= 960 for place in places)
