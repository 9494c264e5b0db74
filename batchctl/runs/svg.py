"""Plots as inline SVG: bars on a time axis, a growing sum, a histogram, a share. Colours come from the page's style."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from batchctl.core.durations import format_duration
from batchctl.runs.page import Html, scrolling, tag

WIDTH = 960
LEFT, RIGHT, TOP, BOTTOM = 76, 24, 8, 24
PLOT = WIDTH - LEFT - RIGHT
ROW = 16
HEIGHT = 220
MOST_TICKS = 8
WIDEST = 96  # of a column
_DAY = 86_400
_STEPS = (0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, _DAY)


class Bar(NamedTuple):
    """A span of time, in seconds since the start of the axis."""

    label: str
    start: float
    end: float
    kind: str
    title: str


class Bin(NamedTuple):
    """A column of a histogram."""

    label: str
    height: int


def ticks(span: float) -> list[float]:
    """Round moments from 0 to `span` seconds, eight steps at most."""
    step = next((step for step in _STEPS if span <= step * MOST_TICKS), 0.0)
    if not step:
        step = _DAY * round_up(span / _DAY / MOST_TICKS)
    return [step * number for number in range(int(span / step) + 1)]


def elapsed(seconds: float) -> str:
    """A moment on the time axis."""
    if not seconds:
        return "0"
    return f"+{seconds:.3g}s" if seconds < 60 else f"+{took(seconds)}"  # noqa: PLR2004  # a minute


def took(seconds: float) -> str:
    """A duration that stays on one line."""
    return format_duration(seconds).replace(" ", "\u00a0")


def timeline(title: str, bars: Sequence[Bar], span: float) -> Html:
    """A row for each bar, from its start to its end."""
    bottom = TOP + ROW * len(bars)
    rows = [_row(bar, TOP + ROW * index, span) for index, bar in enumerate(bars)]
    return _plot(title, bottom + BOTTOM, *_time_axis(span, bottom), *rows)


def _row(bar: Bar, top: int, span: float) -> Html:
    start, end = _across(bar.start, span), _across(bar.end, span)
    return tag(
        "g",
        tag("title", bar.title),
        tag("text", bar.label, x=LEFT - 8, y=top + 12, text_anchor="end"),
        tag("rect", x=start, y=top + 3, width=round(max(end - start, 2.0), 1), height=ROW - 5, rx=2, class_=bar.kind),
    )


def settled(title: str, points: Sequence[tuple[float, int, int]], span: float, planned: int) -> Html:
    """Sums that grow over time: succeeded, and failed on top of it, of all that is planned.

    Args:
        points: (seconds, succeeded so far, failed so far), in the order of time.
    """
    bottom = HEIGHT - BOTTOM
    top = max(planned, 1)
    levels = [
        Html(
            tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=_up(value, top), y2=_up(value, top), class_="grid")
            + tag("text", value, x=LEFT - 8, y=_up(value, top) + 4, text_anchor="end")
        )
        for value in _levels(top)
    ]
    areas = [
        tag("path", tag("title", name), d=_steps(sums, top, span, bottom), class_=name)
        for name, sums in (
            ("failed", [(at, succeeded + failed) for at, succeeded, failed in points]),
            ("succeeded", [(at, succeeded) for at, succeeded, _ in points]),
        )
        if sums[-1][1]
    ]
    return _plot(title, HEIGHT, *levels, *_time_axis(span, bottom), *areas)


def _steps(sums: Iterable[tuple[float, int]], top: int, span: float, bottom: int) -> str:
    moves = "".join(f"H{_across(at, span)}V{_up(value, top)}" for at, value in sums)
    return f"M{LEFT},{bottom}{moves}H{_across(span, span)}V{bottom}Z"


def histogram(title: str, bins: Sequence[Bin], axis: str) -> Html:
    """A column for each bin, with its label below."""
    bottom = HEIGHT - BOTTOM
    most = max((entry.height for entry in bins), default=0) or 1
    wide = min(PLOT / max(len(bins), 1), WIDEST)
    parts = [
        tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom, class_="grid"),
        tag("text", most, x=LEFT - 8, y=_up(most, most) + 4, text_anchor="end"),
        tag("text", "0", x=LEFT - 8, y=bottom + 4, text_anchor="end"),
    ]
    for index, entry in enumerate(bins):
        left = round(LEFT + wide * index, 1)
        column = {"x": left + 1, "y": _up(entry.height, most), "width": round(max(wide - 2, 1), 1), "class_": "plain"}
        hint = tag("title", f"{entry.label} {axis}: {entry.height:,}")
        parts.append(tag("rect", hint, height=round(bottom - _up(entry.height, most), 1), **column))
        label = {"x": round(left + wide / 2, 1), "y": bottom + 15, "text_anchor": "middle"}
        parts.append(tag("text", entry.label, **label))
    return _plot(title, HEIGHT, *parts)


def meter(count: int, total: int, kind: str = "plain") -> Html:
    """A share of a whole as a bar; the numbers stand beside it."""
    share = min(100 * count / total, 100) if total > 0 else 0
    rail = tag("rect", width=100, height=10, class_="rail")
    bar = tag("rect", width=round(max(share, 0.4 if count else 0), 2), height=10, class_=kind)
    return tag(
        "svg", rail, bar, viewBox="0 0 100 10", preserveAspectRatio="none", class_="meter", role="img",
        aria_label=f"{share:.1f} %",
    )  # fmt: skip


def legend(kinds: Iterable[tuple[str, int]]) -> Html:
    """What each colour means, with how many there are."""
    keys = (
        tag(
            "li",
            tag(
                "svg",
                tag("rect", width=10, height=10, class_=kind),
                viewBox="0 0 10 10",
                class_="key",
                aria_hidden="true",
            ),
            f"{kind.replace('_', ' ')}: {count:,}",
        )
        for kind, count in kinds
    )
    return tag("ul", *keys, class_="legend")


def _plot(title: str, height: int, *parts: Html) -> Html:
    drawing = tag(
        "svg", tag("title", title), *parts, viewBox=f"0 0 {WIDTH} {height}", class_="wide", role="img", aria_label=title
    )
    return scrolling(title, drawing)


def _time_axis(span: float, bottom: int) -> list[Html]:
    parts = []
    for at in ticks(span):
        x = _across(at, span)
        parts.append(tag("line", x1=x, x2=x, y1=TOP, y2=bottom, class_="grid"))
        parts.append(tag("text", elapsed(at), x=x, y=bottom + 16, text_anchor="middle"))
    return parts


def _across(seconds: float, span: float) -> float:
    return round(LEFT + PLOT * min(max(seconds / span, 0.0), 1.0), 1)


def _up(value: int, top: int) -> float:
    return round(TOP + (HEIGHT - BOTTOM - TOP) * (1 - min(value / top, 1.0)), 1)


def _levels(top: int) -> list[int]:
    step = round_up(top / 4)
    return [*(value for value in range(0, top, step) if top - value > step / 2), top]


def round_up(value: float) -> int:
    """The next of 1, 2, 5, 10, 20, 50 and so on."""
    power = int("1" + "0" * (len(str(int(value))) - 1))
    return next(size for size in (power, 2 * power, 5 * power, 10 * power) if size >= value)
