"""Faults on request: which call, item, batch or upload goes wrong, and how.

A fault file is one JSON object with up to four lists; in each, the first rule that fits wins. docs/simulator.md shows
examples.

`calls`: what happens to HTTP calls.
  Which: `endpoint` (a name such as `anthropic.batches.create`, with `*` and `?`), and any of `nth` (a number or a list,
  counted from 1 over the calls of that endpoint), `every` (each N-th), `from_nth`, `rate` (0 to 1, seeded), `times` (at
  most so often), `contains` (text in the body), `from` / `to` (virtual seconds since the start).
  What: `action` is one of
  `drop` (cut the connection; `when` = `before` or `after` the request took effect; `after_bytes`: read so many bytes
  first),
  `status` (`status`, optional `type`, `code`, `param`, `message`, `headers`, `body` as raw text, `when`),
  `error` (`name`: one of `errors.ERROR_NAMES`, `headers`, `when`),
  `html` (an HTML page with `status`, default 502; `when`),
  `hang` (`seconds`, default an hour, real; `when`),
  `slow` (the answer in pieces of `bytes` every `delay` real seconds),
  `truncate` (a download ends after `bytes`; `content_length`: true announces the full length, false ends like a
  complete one),
  `lines` (a download with `duplicate`, `drop`, `unknown`, `no_id`, `junk`, `blank` numbers of such lines, `crlf`: true,
  `line_separators`: true, `no_content_type`: true),
  `edit` (the answer, or each line of a download, with `set`: new values by path, such as `data.*.metadata`, and
  `reverse`: paths of lists to turn round; `line`: only this one, from 1).

`items`: what becomes of single requests, in both lanes.
  Which: any of `probability` (seeded, the same for the same body and attempt), `custom_id` (with `*`),
  `prompt_contains`, `first_n_attempts`, `api`, `lane` (`batch` or `sync`), `times`.
  What: `kind`, one of `kinds.KINDS`.

`batches`: what becomes of whole batches, matched when they are created.
  Which: any of `api`, `nth` (over the batches of that api), `every`, `rate`, `times`, `min_requests`.
  What: any of `stuck` (true, or the fraction done), `ignore_deadline` (runs on past its own `expires_at`),
  `cancel_never_ends`, `cancel_seconds`, `cancel_finishes` (a cancel stops nothing: every item is answered),
  `expire` (fraction done) with `expire_after` (virtual seconds, default 24 h), `duration`, `status` (an unknown word
  while it runs), `fail` (a code, or a list of `{code, line, message, param}`; OpenAI), `error_file_id` (`""` or
  `"missing"`), `output_file_id` (`"null"` or `""`), `counts` (`null`, or `all_completed`), `results_host` (an address
  such as `http://127.0.0.1:9`), `retrieve_404_calls`, `retrieve_404_seconds`, `list_lag_calls`, `list_lag_seconds`.

`files`: what becomes of uploads. Which: any of `nth`, `every`, `from_nth`, `rate`, `times`.
  What: any of `not_found_creates` (so many creates answer 400), `pending_retrieves` (status `pending` so often),
  `no_status`, `ignore_expiry`, `list_lag_calls`, `list_lag_seconds`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from batchctl.simulator.codec import draw
from batchctl.simulator.errors import ERROR_NAMES
from batchctl.simulator.kinds import KINDS, OK

Rule = dict[str, Any]

_WHICH = {"nth", "every", "from_nth", "rate", "times"}
_KEYS: dict[str, set[str]] = {
    "calls": _WHICH
    | {"endpoint", "contains", "from", "to", "action", "when", "after_bytes", "status", "type", "code", "param"}
    | {"message", "headers", "body", "name", "seconds", "bytes", "delay", "content_length", "duplicate", "drop"}
    | {"unknown", "no_id", "junk", "blank", "crlf", "line_separators", "no_content_type", "set", "reverse", "line"},
    "items": {"probability", "custom_id", "prompt_contains", "first_n_attempts", "api", "lane", "times", "kind"},
    "batches": _WHICH
    | {"ignore_deadline", "cancel_seconds", "cancel_finishes"}
    | {"api", "min_requests", "stuck", "cancel_never_ends", "expire", "expire_after", "duration", "status", "fail"}
    | {"error_file_id", "output_file_id", "counts", "results_host", "retrieve_404_calls", "retrieve_404_seconds"}
    | {"list_lag_calls", "list_lag_seconds"},
    "files": _WHICH
    | {"not_found_creates", "pending_retrieves", "no_status", "ignore_expiry", "list_lag_calls", "list_lag_seconds"},
}
_NUMBERS = {
    *("every", "from_nth", "rate", "times", "from", "to", "after_bytes", "seconds", "bytes", "delay", "probability"),
    *("first_n_attempts", "min_requests", "expire", "expire_after", "duration", "retrieve_404_calls", "list_lag_calls"),
    *("retrieve_404_seconds", "list_lag_seconds", "not_found_creates", "pending_retrieves", "duplicate", "drop"),
    *("unknown", "no_id", "junk", "blank", "cancel_seconds", "line"),
}
_ACTIONS = ("drop", "status", "error", "html", "hang", "slow", "truncate", "lines", "edit")


@dataclass(slots=True)
class Item:
    """One request as the item rules see it; the prompt is read only when a rule asks for it."""

    api: str
    lane: str
    custom_id: str | None
    digest: bytes
    attempt: int
    prompt: Callable[[], str]


@dataclass(slots=True)
class _Counts:
    seen: Counter[str] = field(default_factory=Counter)
    fired: int = 0


_Counted = tuple[Rule, _Counts]


class Faults:
    """One checked set of rules with its counters; replacing the rules starts the counters anew."""

    def __init__(self, source: dict[str, Any], seed: int) -> None:
        check_faults(source)
        self.source = source
        self._seed = seed
        self._random = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._calls: list[_Counted] = [(rule, _Counts()) for rule in source.get("calls", [])]
        self._items: list[_Counted] = [(rule, _Counts()) for rule in source.get("items", [])]
        self._batches: list[_Counted] = [(rule, _Counts()) for rule in source.get("batches", [])]
        self._files: list[_Counted] = [(rule, _Counts()) for rule in source.get("files", [])]
        self.reads_bodies = any("contains" in rule for rule, _ in self._calls)

    def for_call(self, endpoint: str, age: float, body: bytes) -> Rule | None:
        """Pick the rule for one HTTP call."""

        def fits(rule: Rule) -> bool:
            return (
                fnmatchcase(endpoint, rule["endpoint"])
                and ("contains" not in rule or rule["contains"].encode() in body)
                and rule.get("from", 0.0) <= age < rule.get("to", float("inf"))
            )

        return self._pick(self._calls, endpoint, fits)

    def for_batch(self, api: str, requests: int) -> Rule:
        """Pick the effects on one new batch."""

        def fits(rule: Rule) -> bool:
            return bool(rule.get("api", api) == api and requests >= rule.get("min_requests", 0))

        return self._pick(self._batches, api, fits) or {}

    def for_file(self) -> Rule:
        """Pick the effects on one upload."""
        return self._pick(self._files, "", lambda _rule: True) or {}

    def for_item(self, item: Item) -> str:
        """Pick the kind of one request."""
        for place, (rule, counts) in enumerate(self._items):
            if self._fits_item(rule, item, place) and counts.fired < rule.get("times", float("inf")):
                counts.fired += 1
                return str(rule["kind"])
        return OK

    def _fits_item(self, rule: Rule, item: Item, place: int) -> bool:
        if rule.get("api", item.api) != item.api or rule.get("lane", item.lane) != item.lane:
            return False
        if item.attempt > rule.get("first_n_attempts", float("inf")):
            return False
        if "custom_id" in rule and not fnmatchcase(item.custom_id or "", rule["custom_id"]):
            return False
        if "prompt_contains" in rule and rule["prompt_contains"] not in item.prompt():
            return False
        if "probability" not in rule:
            return True
        return draw(self._seed, place, item.digest.hex(), item.attempt) < float(rule["probability"])

    def _pick(self, rules: list[_Counted], series: str, fits: Callable[[Rule], bool]) -> Rule | None:
        """Take the first rule that fires; the others count the event all the same, so `nth` means what it says."""
        chosen = None
        for rule, counts in rules:
            if not fits(rule):
                continue
            counts.seen[series] += 1
            if chosen is None and self._fires(rule, counts, counts.seen[series]):
                counts.fired += 1
                chosen = rule
        return chosen

    def _fires(self, rule: Rule, counts: _Counts, number: int) -> bool:
        nth = rule.get("nth", number)
        return bool(
            number in (nth if isinstance(nth, list) else [nth])
            and number % rule.get("every", 1) == 0
            and number >= rule.get("from_nth", 1)
            and counts.fired < rule.get("times", float("inf"))
            and ("rate" not in rule or self._random.random() < rule["rate"])
        )


def check_faults(source: dict[str, Any]) -> None:
    """Refuse a fault file with a word in it that nothing would obey."""
    if unknown := set(source) - set(_KEYS):
        raise ValueError(f"unknown fault section {', '.join(sorted(unknown))}; known: {', '.join(_KEYS)}")
    for section, keys in _KEYS.items():
        given = source.get(section, [])
        if not isinstance(given, list):
            raise ValueError(f"faults.{section}: expected a list of rules")  # noqa: TRY004
        for place, rule in enumerate(given):
            where = f"faults.{section}[{place}]"
            if not isinstance(rule, dict):
                raise ValueError(f"{where}: expected an object")  # noqa: TRY004
            if unknown := set(rule) - keys:
                raise ValueError(f"{where}: unknown {', '.join(sorted(unknown))}; known: {', '.join(sorted(keys))}")
            _check_rule(section, rule, where)


def _check_rule(section: str, rule: Rule, where: str) -> None:
    for name in _NUMBERS & set(rule):
        if isinstance(rule[name], bool) or not isinstance(rule[name], int | float):
            raise ValueError(f"{where}: `{name}` must be a number")  # noqa: TRY004
    if section == "calls":
        if "endpoint" not in rule or rule.get("action") not in _ACTIONS:
            raise ValueError(f"{where}: needs `endpoint` and an `action` of {', '.join(_ACTIONS)}")
        if rule["action"] == "status" and not isinstance(rule.get("status"), int):
            raise ValueError(f"{where}: `status` must be a number")
        if rule["action"] == "error" and rule.get("name") not in ERROR_NAMES:
            raise ValueError(f"{where}: `name` must be one of {', '.join(ERROR_NAMES)}")
        if rule["action"] == "edit" and not isinstance(rule.get("set", {}), dict):
            raise ValueError(f"{where}: `set` must be an object")
        if rule.get("when", "before") not in ("before", "after"):
            raise ValueError(f"{where}: `when` must be `before` or `after`")
    if section == "items" and rule.get("kind") not in KINDS:
        raise ValueError(f"{where}: `kind` must be one of {', '.join(KINDS)}")
