"""The model: a deterministic classifier of short texts, and an echo for every other prompt.

`answer(prompt, system)` is the whole of it, a pure function, so that a test can say what an item's answer must be.
Categories are a JSON array of strings anywhere in the prompt or the system text, or lines `- category`. The text is
what follows the last `Ticket:`, `Message:` or `Text:` (or stands in a tag of that name), else the prompt's last
paragraph.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter, defaultdict
from functools import lru_cache

import msgspec

from batchctl.simulator.codec import decode, encode
from batchctl.simulator.words import PRIORITIES, STOP, SYNONYMS, stem, words

_MARKER = re.compile(
    r"^[#*\s]*(?:customer |support |user )?(?:ticket|message|text)\b[^:\n]{0,20}:\**[ \t]*|<(?:ticket|message|text)>",
    re.IGNORECASE | re.MULTILINE,
)
_CLOSING_TAG = re.compile(r"</(?:ticket|message|text)>\s*.*\Z", re.IGNORECASE | re.DOTALL)
_ARRAY = re.compile(r'\[\s*"(?:[^"\\\n]|\\.)*"(?:\s*,\s*"(?:[^"\\\n]|\\.)*")+\s*\]')
_BULLET = re.compile(r"^[ \t]*[-*][ \t]+(\S[^\n]*?)[ \t\r]*$", re.MULTILINE)
_CATCH_ALL = ("other", "general", "misc", "unknown", "none")


def answer(prompt: str, system: str = "") -> str:
    """Answer a prompt: the category (and priority, when asked for) as JSON, or an echo with the prompt's digest."""
    head, text = _split(prompt)
    categories = _categories(system) or _categories(head) or _arrays(text)
    asks_json = "json" in head.lower() or "json" in system.lower()
    if not categories:
        return _echo(prompt, system, text, asks_json=asks_json)
    reply = {"category": _best(categories, _ARRAY.sub(" ", text))}
    if "priority" in head.lower() or "priority" in system.lower():
        reply["priority"] = _priority(text)
    return encode(reply).decode()


def prompt_digest(prompt: str, system: str = "") -> str:
    """Digest that an echo carries, to tell which prompt an answer belongs to."""
    return hashlib.blake2b(f"{system}\x00{prompt}".encode("utf-8", "replace"), digest_size=6).hexdigest()


def _echo(prompt: str, system: str, text: str, *, asks_json: bool) -> str:
    digest = prompt_digest(prompt, system)
    start = " ".join(text.split())[:60]
    return encode({"digest": digest, "echo": start}).decode() if asks_json else f"[{digest}] {start}"


def _split(prompt: str) -> tuple[str, str]:
    last = max(_MARKER.finditer(prompt), key=re.Match.start, default=None)
    if last is None:
        head, _, text = prompt.rstrip().rpartition("\n\n")
        return (head, text) if head else (prompt, prompt)
    return prompt[: last.start()], _CLOSING_TAG.sub("", prompt[last.end() :])


def _arrays(text: str) -> tuple[str, ...]:
    found = max(_ARRAY.findall(text), key=len, default=None)
    return _parse_array(found) if found else ()


@lru_cache(maxsize=64)
def _parse_array(source: str) -> tuple[str, ...]:
    try:
        return tuple(decode(source))
    except msgspec.DecodeError:
        return ()


@lru_cache(maxsize=64)
def _categories(text: str) -> tuple[str, ...]:
    bullets = _BULLET.findall(text)
    return _arrays(text) or (tuple(bullets) if len(bullets) > 1 else ())


def _priority(text: str) -> str:
    found = set(words(text))
    return next((name for name, telling in PRIORITIES if found & telling), "normal")


def _best(categories: tuple[str, ...], text: str) -> str:
    index = _index(categories)
    scores = [0.0] * len(categories)
    for word in {stem(word) for word in words(text) if word not in STOP}:
        for place, weight in index.get(word, ()):
            scores[place] += weight
    top = max(scores)
    if top > 0:
        return categories[scores.index(top)]
    return next((name for name in categories if name.lower() in _CATCH_ALL), categories[0])


@lru_cache(maxsize=64)
def _index(categories: tuple[str, ...]) -> dict[str, tuple[tuple[int, float], ...]]:
    """Weigh each word for each category: rare category words weigh more, synonyms less, long names are evened out."""
    own = [
        [word for word in words(name.replace("_", " ").replace("-", " ")) if word not in STOP] for name in categories
    ]
    spread = Counter(word for parts in own for word in set(parts))
    index: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for place, parts in enumerate(own):
        for word in parts:
            weight = math.log(1 + len(categories) / spread[word]) / math.sqrt(len(parts))
            index[stem(word)][place] = max(weight, index[stem(word)].get(place, 0.0))
            for other in SYNONYMS.get(word, "").split():
                known = index[stem(other)].get(place, 0.0)
                index[stem(other)][place] = max(known, 0.7 * weight)
    return {word: tuple(places.items()) for word, places in index.items()}
