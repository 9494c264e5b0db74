"""The frame of an HTML page: markup that escapes by construction, tables, style, and a policy that forbids the rest."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

CSS = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1d2430; --soft: #5b6675; --line: #d9dee5; --card: #f5f7f9;
  --good: #2b8a57; --bad: #c23b33; --late: #b36b00; --odd: #7a55a8; --wrong: #b03a86; --busy: #2a6cb5; --near: #23848c;
  --idle: #8b95a3; }
@media (prefers-color-scheme: dark) { :root { --ground: #14181e; --ink: #e4e8ed; --soft: #a0abb8; --line: #343c47;
  --card: #1c222a; --good: #4fb981; --bad: #ee6f66; --late: #e0a13c; --odd: #b394e0; --wrong: #e07fbd; --busy: #6aa8ec;
  --near: #55bcc4; --idle: #7a8594; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 64rem; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { margin: 0; font-size: 1.6rem; overflow-wrap: anywhere; }
h2 { margin: 2.2rem 0 .6rem; padding-bottom: .2rem; border-bottom: 1px solid var(--line); font-size: 1.15rem; }
p { margin: .4rem 0; overflow-wrap: anywhere; }
.soft, caption { color: var(--soft); font-size: .9rem; }
.needs { padding: .6rem .8rem; border-left: 4px solid var(--late); background: var(--card); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .6rem; margin: 1rem 0 .6rem;
  padding: 0; }
.tiles div { padding: .6rem .8rem; border: 1px solid var(--line); border-radius: 6px; background: var(--card); }
.tiles dt { color: var(--soft); font-size: .85rem; }
.tiles dd { margin: 0; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: .4rem 0; font-size: .9rem; }
caption { padding-bottom: .2rem; text-align: left; }
th, td { padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top;
  font-weight: normal; overflow-wrap: break-word; }
thead th { color: var(--soft); white-space: nowrap; }
th.n, td.n { padding-right: 1rem; text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.plot { width: 40%; min-width: 8rem; vertical-align: middle; }
code, pre { font: .85rem/1.45 ui-monospace, monospace; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; max-height: 24rem; overflow-y: auto; }
details { margin: .4rem 0; }
summary { cursor: pointer; color: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: .4rem 0; padding: 0; list-style: none;
  font-size: .9rem; }
svg { display: block; }
svg.wide { width: 100%; min-width: 40rem; height: auto; }
svg.meter { width: 100%; height: .7rem; }
svg.wide path { stroke-width: 1.5; }
path.succeeded { stroke: var(--good); }
path.failed { stroke: var(--bad); }
svg.key { display: inline-block; width: .75rem; height: .75rem; margin-right: .35rem; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.grid { stroke: var(--line); }
.rail { fill: var(--line); }
.succeeded, .collected { fill: var(--good); }
.errored, .failed, .rejected, .unknown { fill: var(--bad); }
.expired, .canceling { fill: var(--late); }
.missing, .abandoned { fill: var(--odd); }
.invalid { fill: var(--wrong); }
.in_progress, .submitting, .plain { fill: var(--busy); }
.ended { fill: var(--near); }
.open, .waiting, .withdrawn, .canceled { fill: var(--idle); }
"""


class Html(str):
    """Markup that is finished; any other text is escaped where it goes in."""

    __slots__ = ()


def shown(value: object) -> str:
    """A value as plain text; control characters, direction marks and lone surrogates are shown, not obeyed."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.4f}"
    if isinstance(value, int):
        return f"{value:,}"
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), str(value))


def tag(name: str, *children: object, **attributes: object) -> Html:
    """An element; children and attribute values are escaped unless they are `Html`.

    Args:
        attributes: `class_` is class, other underscores are dashes; None leaves one out.
    """
    inside = "".join(child if isinstance(child, Html) else escape(shown(child)) for child in children)
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>{inside}</{name}>")


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Html:
    """A table: the first cell names its row, columns of numbers stand right."""
    lines = list(rows)
    kinds = [_kind([line[index] for line in lines]) for index in range(len(header))]
    head = [tag("th", name, scope="col", class_=kind) for name, kind in zip(header, kinds, strict=True)]
    body = [tag("tr", tag("th", line[0], scope="row", class_=kinds[0]), *_cells(line, kinds)) for line in lines]
    whole = tag("table", tag("caption", caption), tag("thead", tag("tr", *head)), tag("tbody", *body))
    return scrolling(caption, whole)


def scrolling(title: str, content: Html) -> Html:
    """Something wide, which on a narrow screen moves sideways, by keyboard too."""
    return tag("div", content, class_="scroll", role="region", tabindex=0, aria_label=title)


def _cells(line: Sequence[object], kinds: Sequence[str | None]) -> list[Html]:
    return [tag("td", value, class_=kind) for value, kind in list(zip(line, kinds, strict=True))[1:]]


def _kind(column: Sequence[object]) -> str | None:
    if any(isinstance(value, int | float) for value in column):
        return "n"
    return "plot" if any(isinstance(value, Html) and value.startswith("<svg") for value in column) else None


def tiles(pairs: Iterable[tuple[str, object]]) -> Html:
    """Headline figures."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs), class_="tiles")


def section(title: str, *content: object) -> Html:
    """A part of the page under its heading."""
    return tag("section", tag("h2", title), *content)


def note(text: str) -> Html:
    """A remark in soft colour."""
    return tag("p", text, class_="soft")


def page(title: str, *content: Html) -> bytes:
    """The whole document; its policy allows this style and nothing else: no script, no address, no form."""
    digest = b64encode(hashlib.sha256(CSS.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = (
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        tag("title", title),
        tag("style", Html(CSS)),
    )
    document = tag("html", tag("head", *head), tag("body", tag("main", *content)), lang="en")
    return f"<!doctype html>\n{document}\n".encode()
