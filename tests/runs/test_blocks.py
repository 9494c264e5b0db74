"""Lines taken together give what they give one by one, to the byte."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from batchctl.files.readers import BadRecord, Block, Record, Source, open_source
from batchctl.providers import registry
from batchctl.runs.building import make_builder
from batchctl.runs.cutting import Cut, Cutter
from batchctl.runs.limits import id_room, limits_for, wire_ids
from batchctl.runs.problems import Problem
from batchctl.runs.settings import Settings
from batchctl.state.rows import NewItem

LINES = 900


class Kept:
    """A sink that keeps all it is given."""

    def __init__(self) -> None:
        self.spool = b""
        self.items: list[NewItem] = []
        self.problems: list[str] = []
        self.most = 1  # lines kept together

    def line(self, request: bytes) -> int:
        """Keep a line."""
        return self.lines([request + b"\n"])

    def lines(self, requests: list[bytes]) -> int:
        """Keep lines."""
        self.most = max(self.most, len(requests))
        offset = len(self.spool)
        self.spool += b"".join(requests)
        return offset

    def bad(self, problem: Problem) -> tuple[int, int]:
        """Keep a problem."""
        self.problems.append(str(problem))
        return len(self.problems), 1

    def rows(self, items: list[NewItem]) -> None:
        """Keep rows."""
        self.items += items


class OneByOne(Source):
    """A source that never gives lines together."""

    def blocks(self) -> Iterator[Block | Record | BadRecord]:
        """Every record."""
        return iter(self)


def odd_lines(seed: int) -> Iterator[str]:
    """Mostly ordinary items, with everything between them that can be odd."""
    rng = random.Random(seed)
    texts = ["plain", 'say "no"\n', "карта 🙂", "x" * 3_000, "", " ", None, 7, ["a"], "\ud83d", "}\n{", "\u2028"]
    ids = ["a b", "é", 'quo"te', "back\\slash", "bctl-1-2", "i" * 70, "", "i" * 600, 17, 1.5, None, "a\u0000b"]
    for number in range(LINES):
        item: dict[str, object] = {"id": f"item-{number}", "text": f"text {number}", "who": rng.choice(["é", "me"])}
        match rng.randrange(60):
            case 0:
                item["text"] = rng.choice(texts)
            case 1:
                item["id"] = rng.choice(ids)
            case 2:
                del item[rng.choice(["id", "text", "who"])]
            case 3:
                item["id"] = f"item-{rng.randrange(number + 1)}"
            case 4:
                yield rng.choice(["", "[]", '{"id"', '{"id": 1}{"id": 2}', '{"text": "\\ud83d", "id": "s"}'])
                continue
        yield json.dumps(item, ensure_ascii=rng.random() < 0.3) + rng.choice(["", "", "", "", " ", "\r"])


def cut(path: Path, kind: type[Source], settings: Settings) -> tuple[Cut, Kept]:
    """Read a file with a kind of source."""
    form, sink = registry.request_format(settings.provider), Kept()
    limits = limits_for(form, settings)
    cutter = Cutter(
        build=make_builder(settings, form),
        limits=limits,
        wire_ids=partial(wire_ids, settings, "abcdefgh", limits),
        head=form.head,
        sink=sink,
        skip_bad=True,
        id_room=id_room(settings),
    )
    source = open_source(str(path))
    return cutter.read([kind(source.path, source.format, 1 << 20)]), sink


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
@pytest.mark.parametrize(
    "more", [{}, {"tag_ids": True, "max_requests": 150}, {"number_ids": True, "max_bytes": 70_000}]
)
@pytest.mark.parametrize("system", [None, "Be brief.", "You speak {{ who }}."])
def test_blocks_give_what_lines_give(
    tmp_path: Path, provider: str, more: dict[str, object], system: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests, rows, batches and problems are the same whether lines are taken together or one by one."""
    monkeypatch.setattr("batchctl.files.opening.BUFFER", 2_000)
    path = tmp_path / "items.jsonl"
    path.write_text("\n".join(odd_lines(5)) + "\n", encoding="utf-8", newline="")
    settings = Settings(
        provider=provider,
        endpoint=registry.request_format(provider).default_endpoint,
        model="m",
        prompt="{{ text }} for {{ who }}",
        system=system,
        max_tokens=9,
        **more,  # type: ignore[arg-type]
    )
    together, alone = (cut(path, kind, settings) for kind in (Source, OneByOne))
    assert together[0] == alone[0]
    spliced = system is None or "{" not in system
    assert (together[1].most > 9, alone[1].most) == (spliced, 1)
    alone[1].most = together[1].most
    assert vars(together[1]) == vars(alone[1])
    assert together[0].items > LINES * 0.9
