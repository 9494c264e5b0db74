"""Reading prompts out of request bodies of any shape, and what a model makes of them within its token limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from batchctl.simulator.answers import answer
from batchctl.simulator.codec import text_tokens

IMAGE_TOKENS = 1_000
MESSAGE_TOKENS = 3


@dataclass(slots=True)
class Prompt:
    """What the model reads: the user's text, the system text, and the input tokens of both."""

    user: str
    system: str
    tokens: int


@dataclass(slots=True)
class Completion:
    """What the model writes; `finish` is `stop`, `length`, `refusal`, `content_filter` or `pause`."""

    text: str | None
    finish: str
    tokens: int


_FIXED = {
    "refusal": Completion("I can't help with that.", "refusal", 7),
    "null_content": Completion(None, "stop", 0),
    "empty": Completion("", "stop", 0),
    "content_filter": Completion("", "content_filter", 0),
}


def flat_text(content: Any) -> tuple[str, int]:
    """Join the text parts of a content value, and count the tokens of its other parts."""
    if isinstance(content, str):
        return content, 0
    if not isinstance(content, list):
        return "", 0
    texts: list[str] = []
    other = 0
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif isinstance(part, dict):
            other += IMAGE_TOKENS
    return "\n".join(texts), other


def read_messages(messages: Any, system: Any = "") -> Prompt:
    """Read a list of messages plus a separate system text."""
    system_text, tokens = flat_text(system)
    systems = [system_text] if system_text else []
    users: list[str] = []
    everything = text_tokens(system_text) + tokens
    for message in messages if isinstance(messages, list) else []:
        if not isinstance(message, dict):
            continue
        text, other = flat_text(message.get("content"))
        everything += text_tokens(text) + other + MESSAGE_TOKENS
        role = message.get("role")
        if role in ("system", "developer"):
            systems.append(text)
        elif role == "user":
            users.append(text)
    return Prompt("\n\n".join(users), "\n\n".join(systems), everything)


def complete(prompt: Prompt, kind: str, max_tokens: int | None) -> Completion:
    """Write the answer that a kind of success gives."""
    if kind in _FIXED:
        return _FIXED[kind]
    text = answer(prompt.user, prompt.system)
    if kind == "not_json":
        text = f"Sure! Here is the answer you asked for: {text.strip('{}')}"
    if kind == "line_separators":
        text = f"{text}\n\u2028\u2029\x85"
    tokens = text_tokens(text)
    if kind == "truncated":
        return Completion(text[: max(1, len(text) // 2)], "length", max_tokens or tokens)
    if max_tokens is not None and tokens > max_tokens:
        return Completion(text[: 4 * max_tokens], "length", max_tokens)
    return Completion(text, "pause" if kind == "pause_turn" else "stop", tokens)
