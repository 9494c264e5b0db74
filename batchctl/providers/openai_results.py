"""How OpenAI writes answers: output and error lines of batches, bodies of its endpoints, errors. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import msgspec

from batchctl.core.model import Answer, ErrorKind, ItemError, Outcome, Usage
from batchctl.providers.classify import OPENAI, classify
from batchctl.providers.decoding import Number, UnreadableResultError, decode, json_text, known, result_line, tokens


class _Details(msgspec.Struct):
    cached_tokens: Number = None
    cache_write_tokens: Number = None


class _Usage(msgspec.Struct):
    prompt_tokens: Number = None
    completion_tokens: Number = None
    prompt_tokens_details: _Details | None = None
    input_tokens: Number = None
    output_tokens: Number = None
    input_tokens_details: _Details | None = None


class _Error(msgspec.Struct):
    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    param: str | None = None


class _Part(msgspec.Struct):
    vital: ClassVar = {"text", "refusal"}
    text: str | None = None
    refusal: str | None = None


class _Function(msgspec.Struct):
    arguments: msgspec.Raw = msgspec.Raw()


class _ToolCall(msgspec.Struct):
    function: _Function | None = None


class _Message(msgspec.Struct):
    vital: ClassVar = {"content", "refusal", "tool_calls"}
    content: str | list[_Part] | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    vital: ClassVar = {"message", "text"}
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Item(msgspec.Struct):
    """One entry of a response's `output`."""

    vital: ClassVar = {"type", "content"}
    type: str | None = None
    content: list[_Part] | str | None = None
    arguments: msgspec.Raw = msgspec.Raw()


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Datum(msgspec.Struct):
    embedding: msgspec.Raw = msgspec.Raw()


class _Body(msgspec.Struct):
    vital: ClassVar = {"choices", "output", "data", "error"}
    choices: list[_Choice] | None = None
    output: list[_Item] | None = None
    data: list[_Datum] | None = None
    error: _Error | str | None = None
    model: str | None = None
    usage: _Usage | None = None
    status: str | None = None
    incomplete_details: _Incomplete | None = None


class _Response(msgspec.Struct):
    vital: ClassVar = {"body"}
    status_code: int | None = None
    body: _Body | str | None = None


class _Line(msgspec.Struct):
    vital: ClassVar = {"response", "error"}
    custom_id: str
    response: _Response | None = None
    error: _Error | str | None = None


class _RawResponse(msgspec.Struct):
    body: msgspec.Raw


class _RawLine(msgspec.Struct):
    response: _RawResponse


_ENDED = ("completed", "incomplete", "failed")  # statuses of a response that is not under way
_NO_ERROR = _Error()  # an empty object says there is none
_OUTCOMES = {"batch_expired": Outcome.EXPIRED, "batch_cancelled": Outcome.CANCELED, "batch_canceled": Outcome.CANCELED}

_LINES = msgspec.json.Decoder(_Line)
_BODIES = msgspec.json.Decoder(_Body | str | None)
_RAW_LINES = msgspec.json.Decoder(_RawLine)

_OK = range(200, 300)


def classify_error(type: str | None, code: str | None, status: int | None, message: str) -> ErrorKind:  # noqa: A002  # the provider's own word
    """What an OpenAI error asks for."""
    return classify(OPENAI, type, code, status, message)


def parse_error(raw: bytes, status: int) -> ItemError | None:
    """The error of an HTTP answer that is not 200; None where the body is no error envelope."""
    try:
        body = decode(_BODIES, raw)
    except ValueError:
        return None
    return _item_error(body.error, status) if isinstance(body, _Body) and body.error else None


def _item_error(error: _Error | str | None, status: int | None = None) -> ItemError:
    if not isinstance(error, _Error):
        error = _Error(message=error)
    code = None if error.code is None else str(error.code)
    message = error.message or f"the provider gave no reason (status {status})"
    return ItemError(error.type or code or "unknown", message, classify_error(error.type, code, status, message), code)


def _failed(custom_id: str, error: _Error | str | None, status: int | None) -> Answer:
    """An attempt that gave no answer; OpenAI tells expiry and cancel by the error's code."""
    code = error.code if isinstance(error, _Error) else None
    outcome = _OUTCOMES.get(code, Outcome.ERRORED) if isinstance(code, str) else Outcome.ERRORED
    return Answer(custom_id, outcome, error=_item_error(error, status))


def _answer(custom_id: str, body: _Body | str | None, whole: Callable[[], str]) -> Answer:
    """The answer in the body of a 2xx, of any endpoint and either lane; a body with an error object is no success.

    `whole` gives the body as it came, for endpoints with a shape of their own.
    """
    if not isinstance(body, _Body):
        return _failed(custom_id, body or "an answer without a body", 0)
    if body.error and body.error != _NO_ERROR:
        return _failed(custom_id, body.error, None)
    if body.status == "failed":
        return _failed(custom_id, "the response has status failed", 0)
    if reason := _without_answer(body, whole):
        error = ItemError("no_answer", reason, ErrorKind.PERMANENT)  # it may be billed, so it is not asked again
        return Answer(custom_id, Outcome.INVALID, whole(), body.status, body.model, _used(body), error)
    if body.choices:
        text, stop_reason = _chosen(body.choices[0])
    elif body.output is not None:
        reason = body.incomplete_details.reason if body.incomplete_details else None
        text, stop_reason = _responded(body.output, reason or body.status)
    else:
        text, stop_reason = _vectors(body.data) or whole(), None
    return Answer(custom_id, Outcome.SUCCEEDED, text, stop_reason, body.model, _used(body))


def _without_answer(body: _Body, whole: Callable[[], str]) -> str | None:
    """Why a 2xx holds no answer, where it is of an endpoint we know and holds none."""
    if body.status is not None and body.status not in _ENDED:
        return f"the response is {body.status}"
    if body.choices:
        choice = body.choices[0]
        return "the choice holds no message" if choice.message is None and choice.text is None else None
    if body.output is not None or _are_vectors(body.data):
        return None
    fields = msgspec.json.decode(whole(), type=dict[str, msgspec.Raw])
    lacking = next((name for name in ("choices", "output", "data") if name in fields), None)
    if lacking:
        return f"the answer's {lacking!r} is empty"
    return None if fields else "the answer is an empty object"


def _used(body: _Body) -> Usage | None:
    return None if body.usage is None else known(_counted(body.usage))


def _are_vectors(data: list[_Datum] | None) -> bool:
    return bool(data) and not any(bytes(datum.embedding) in (b"", b"null") for datum in data or ())


def _vectors(data: list[_Datum] | None) -> str | None:
    """Embeddings as JSON: the vector of one input, a list of vectors of several."""
    if not data or not _are_vectors(data):
        return None
    vectors = [json_text(datum.embedding) for datum in data]
    return vectors[0] if len(vectors) == 1 else f"[{','.join(vectors)}]"


def _chosen(choice: _Choice) -> tuple[str | None, str | None]:
    """Text and stop reason; a refusal is marked as one, since the provider's own word for it is "stop"."""
    message = choice.message
    if message is None:
        return choice.text, choice.finish_reason
    content = message.content
    text, refusal = _joined(content) if isinstance(content, list) else (content, None)
    refusal = message.refusal or refusal
    if refusal and not text:
        return refusal, "refusal"
    if not text and message.tool_calls and message.tool_calls[0].function:
        return _arguments(message.tool_calls[0].function.arguments), choice.finish_reason
    return text, choice.finish_reason


def _responded(output: list[_Item], status: str | None) -> tuple[str | None, str | None]:
    contents = [item.content for item in output if item.type == "message" and item.content is not None]
    parts = [part for content in contents for part in ([_Part(content)] if isinstance(content, str) else content)]
    text, refusal = _joined(parts)
    if text:
        return text, status
    if refusal:
        return refusal, "refusal"
    called = (_arguments(item.arguments) for item in output)
    return next((arguments for arguments in called if arguments is not None), text), status


def _arguments(raw: msgspec.Raw) -> str | None:
    """The arguments of a tool call, which most servers write as JSON inside a string, and some as JSON."""
    text = bytes(raw) or b"null"
    return msgspec.json.decode(text, type=str | None) if text[:1] in b'"n' else json_text(raw)


def _joined(parts: list[_Part]) -> tuple[str | None, str | None]:
    """Text and refusal of a list of content parts, each None where there is none."""
    texts = [part.text for part in parts if part.text is not None]
    refusals = [part.refusal for part in parts if part.refusal is not None]
    return "".join(texts) if texts else None, "".join(refusals) if refusals else None


def _counted(usage: _Usage) -> Usage:
    """OpenAI's cached and written tokens are inside its input count."""
    details = usage.prompt_tokens_details or usage.input_tokens_details
    return Usage(
        tokens(usage.prompt_tokens) or tokens(usage.input_tokens),
        tokens(usage.completion_tokens) or tokens(usage.output_tokens),
        tokens(details.cached_tokens) if details else 0,
        tokens(details.cache_write_tokens) if details else 0,
    )


def parse_result(raw: bytes) -> Answer:
    """One line of an output or error file.

    Raises:
        UnreadableResultError: a line without an id, or that is no result (field report 102).
    """
    line = result_line(_LINES, raw)
    if not line.custom_id:
        raise UnreadableResultError("a result without a custom_id")
    response = line.response
    if line.error and line.error != _NO_ERROR:
        return _failed(line.custom_id, line.error, response.status_code if response else None)
    if response is None:
        return _failed(line.custom_id, "a line with neither response nor error", 0)
    body, status = response.body, response.status_code
    if status in _OK or (status is None and _answers(body)):
        return _answer(line.custom_id, body, lambda: json_text(decode(_RAW_LINES, raw).response.body))
    # a refused request has a null error and the reason inside the body (field report 100)
    reason = body.error if isinstance(body, _Body) else body
    return _failed(line.custom_id, reason or f"status {status} without a reason", status or 0)


def _answers(body: _Body | str | None) -> bool:
    """Whether a body without a readable status holds an answer all the same."""
    return isinstance(body, _Body) and not body.error and bool(body.choices or body.output or body.data)


def parse_completion(custom_id: str, raw: bytes) -> Answer:
    """The body of a 200 answer of an ordinary endpoint.

    Raises:
        ValueError: a body that is no answer.
    """
    return _answer(custom_id, decode(_BODIES, raw), lambda: raw.decode("utf-8", "replace"))
