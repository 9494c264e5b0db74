"""Reads a provider's list back to the time of an intent, page after page, without trusting it to be in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from batchctl.providers.errors import Call
from batchctl.providers.sdk import Sdk
from batchctl.providers.times import LOOK_BACK, earliest

SAME_TIME = timedelta(seconds=5)  # between two entries whose order in a list says nothing: clocks of its servers differ


class Dated(Protocol):
    """A listed object."""

    id: str

    def moment(self) -> datetime | None:
        """When it was created."""
        ...


T = TypeVar("T", bound=Dated)


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """A listed object; `in_time` where it came after the intent, and not only because its clock may be wrong."""

    value: T
    in_time: bool


@dataclass(frozen=True, slots=True)
class ListQuery(Generic[T]):
    """One of a provider's lists.

    Args:
        params: of the query.
        cursor: the parameter that takes the last id of a page for the next one.
    """

    path: str
    decoder: msgspec.json.Decoder[T]
    params: Mapping[str, Any]
    cursor: str


class _Page(msgspec.Struct):
    data: list[msgspec.Raw]
    has_more: bool | None = None


_PAGE = msgspec.json.Decoder(_Page)


class _List(Generic[T]):
    """What was read of a list so far."""

    def __init__(self) -> None:
        self.entries: list[tuple[T, datetime]] = []  # each with the earliest time of the intent, as its page tells it
        self.newest_first = True
        self._ids: set[str] = set()

    def add(self, page: list[T], since: datetime) -> bool:
        """Take a page in; whether anything of it is new."""
        moments = [moment for entry, _ in self.entries[-1:] if (moment := entry.moment())]
        moments += [moment for entry in page if (moment := entry.moment())]
        self.newest_first = self.newest_first and all(one >= next_ - SAME_TIME for one, next_ in pairwise(moments))
        new = {entry.id: entry for entry in page if entry.id not in self._ids}
        self._ids.update(new)
        self.entries += [(entry, since) for entry in new.values()]
        return bool(new)

    def holds(self, id_: str | None) -> bool:
        return id_ in self._ids

    def reaches_back(self) -> bool:
        """Whether all that follows is too old."""
        return self.newest_first and bool(self.entries) and _is_old(*self.entries[-1])

    def since_intent(self) -> list[Entry[T]]:
        """By time alone."""
        return [
            Entry(entry, (entry.moment() or since) >= since)
            for entry, since in self.entries
            if not _is_old(entry, since)
        ]

    def before(self, fence: str) -> list[Entry[T]]:
        """What the list has before an entry, and in doubt what is of about the same time, whose order says nothing."""
        ids = [entry.id for entry, _ in self.entries]
        place = ids.index(fence) if fence else len(ids)
        found = [Entry(entry, in_time=True) for entry, _ in self.entries[:place]]
        moment = self.entries[place][0].moment() if fence else None
        return found + [
            Entry(entry, in_time=False)
            for entry, _ in self.entries[place + 1 :]
            if moment is None or (entry.moment() or moment) >= moment - SAME_TIME
        ]


async def read_list(sdk: Sdk, query: ListQuery[T], intent_at: datetime, fence: str | None = None) -> list[Entry[T]]:
    """The entries that came after an intent, or may have, in the order of the list.

    Args:
        fence: id of the newest entry when the intent was made, "" where there was none; None where nobody looked, so
            that only time tells, and the clock here may have been wrong.

    Raises:
        ProviderError: a page cannot be read, or the list does not end.
    """
    read: _List[T] = _List()
    params = dict(query.params)
    while True:
        entries, has_more, server_time = await _page(sdk, query, params)
        is_new = read.add(entries, earliest(intent_at, server_time, datetime.now(UTC)))
        if not has_more or (read.newest_first and read.holds(fence)) or read.reaches_back():
            break
        if not is_new:
            raise sdk.errors.unreadable("its list gives the same page again and again", Call.READ)
        params[query.cursor] = entries[-1].id
    if fence is not None and read.newest_first and (not fence or read.holds(fence)):
        return read.before(fence)
    return read.since_intent()


async def newest(sdk: Sdk, query: ListQuery[T]) -> T | None:
    """The first entry of a list, None where it has none.

    Raises:
        ProviderError: it cannot be read.
    """
    entries, _, _ = await _page(sdk, query, {**query.params, "limit": 1})
    return entries[0] if entries else None


async def _page(
    sdk: Sdk, query: ListQuery[T], params: Mapping[str, Any]
) -> tuple[list[T], bool | None, datetime | None]:
    """One page: its entries, whether there are more, and the provider's clock."""
    reply = await sdk.call("get", query.path, Call.READ, params=params)
    page = sdk.read(_PAGE, reply.body, Call.READ)
    entries = [sdk.read(query.decoder, bytes(raw), Call.READ) for raw in page.data if bytes(raw) != b"null"]
    return entries, page.has_more, reply.server_time


def _is_old(entry: Dated, since: datetime) -> bool:
    return (entry.moment() or since) < since - LOOK_BACK
