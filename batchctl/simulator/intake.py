"""Reading the requests of a new batch: Anthropic's create body, OpenAI's input file, and either one again later.

Anthropic refuses the whole create for a bad id and shows bad parameters per item at the end. OpenAI accepts every create
and fails the whole file later, with line numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from batchctl.simulator.anthropic_shapes import check_params, read_prompt
from batchctl.simulator.batch import Items
from batchctl.simulator.blobs import BlobStore
from batchctl.simulator.codec import body_digest, decode, encode
from batchctl.simulator.config import SimulatorConfig
from batchctl.simulator.errors import OPENAI, ApiError
from batchctl.simulator.kinds import missing_model
from batchctl.simulator.openai_shapes import check_body, missing_parameter
from batchctl.simulator.openai_shapes import read_prompt as read_openai_prompt

_CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SHOWN_ERRORS = 100


class _Request(msgspec.Struct):
    custom_id: Any = None
    params: msgspec.Raw = msgspec.Raw(b"")


class _Create(msgspec.Struct):
    requests: list[_Request] | None = None


@dataclass(slots=True)
class Intake:
    """What was read: the items, which of them are invalid on their own, and errors that fail the whole."""

    items: Items = field(default_factory=Items)
    rejected: bytearray = field(default_factory=bytearray)
    errors: list[dict[str, Any]] = field(default_factory=list)


def read_create(body: bytes, config: SimulatorConfig, version: str, blobs: BlobStore, blob: str) -> Intake:
    """Read an Anthropic create body and keep its requests as lines (message batches reference, errors page)."""
    try:
        requests = msgspec.json.decode(body, type=_Create).requests
    except msgspec.ValidationError as error:
        raise ApiError(400, f"requests: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, f"The request body is not valid JSON: {error}") from None
    _check_requests(requests, config)
    assert requests is not None
    intake = Intake()
    sink = blobs.writer(blob)
    for request in requests:
        raw = bytes(request.params)
        params = decode(raw)
        line = b'{"custom_id":%b,"params":%b}\n' % (encode(request.custom_id), raw.replace(b"\n", b" "))
        intake.items.add(request.custom_id, body_digest(params), sink.size, len(line))
        intake.rejected.append(
            check_params(params, version=version, context_tokens=config.context_tokens, batch=True) is not None
        )
        intake.items.tokens += read_prompt(params).tokens if isinstance(params, dict) else 0
        sink.write(line)
    sink.commit()
    return intake


def _check_requests(requests: list[_Request] | None, config: SimulatorConfig) -> None:
    if not requests:
        raise ApiError(400, "requests: List should have at least 1 item after validation, not 0")
    if len(requests) > config.anthropic_max_requests:
        most = config.anthropic_max_requests
        raise ApiError(400, f"requests: List should have at most {most} items after validation, not {len(requests)}")
    seen: set[str] = set()
    for place, request in enumerate(requests):
        custom_id = request.custom_id
        if not isinstance(custom_id, str) or not _CUSTOM_ID.fullmatch(custom_id):
            raise ApiError(400, f"requests.{place}.custom_id: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'")
        if custom_id in seen:
            raise ApiError(400, f"requests.{place}.custom_id: Duplicate custom_id '{custom_id}'")
        seen.add(custom_id)
        if not bytes(request.params):
            raise ApiError(400, f"requests.{place}.params: Field required")


def read_input_file(blobs: BlobStore, blob: str, endpoint: str, config: SimulatorConfig) -> Intake:
    """Read an OpenAI input file as its validation does (batch guide; codes from Azure's batch page)."""
    intake = Intake()
    seen: set[str] = set()
    start = 0
    with blobs.open(blob) as source:
        for number, line in enumerate(source, 1):
            error = _read_line(line, number, start, endpoint, config, intake, seen)
            if error and len(intake.errors) < _SHOWN_ERRORS:
                intake.errors.append(error)
            start += len(line)
    items = intake.items
    if start == 0:
        intake.errors.append(_file_error("empty_file", "The input file is empty."))
    elif len(items) > config.openai_max_requests:
        most = config.openai_max_requests
        intake.errors = [_file_error("too_many_tasks", f"The file has {len(items)} requests, more than {most}.")]
    elif start > config.openai_max_bytes:
        intake.errors = [_file_error("file_too_large", f"The file has {start} bytes.")]
    return intake


def _read_line(
    line: bytes, number: int, start: int, endpoint: str, config: SimulatorConfig, intake: Intake, seen: set[str]
) -> dict[str, Any] | None:
    try:
        request = decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _line_error("invalid_json_line", number, "This line is not parseable as valid JSON.")
    if not isinstance(request, dict):
        return _line_error("invalid_json_line", number, "This line is not a JSON object.")
    custom_id = request.get("custom_id")
    if not isinstance(custom_id, str) or not custom_id:
        return _line_error("missing_required_parameter", number, "Missing 'custom_id'.", "custom_id")
    if custom_id in seen:
        return _line_error("duplicate_custom_id", number, f"The custom_id '{custom_id}' is used twice.", "custom_id")
    seen.add(custom_id)
    if request.get("method") != "POST":
        return _line_error("invalid_method", number, "The method must be POST.", "method")
    if request.get("url") != endpoint:
        return _line_error("url_mismatch", number, f"The url does not match the endpoint {endpoint}.", "url")
    body = request.get("body")
    if missing := missing_parameter(body, endpoint):
        param = missing if missing == "body" else f"body.{missing}"
        return _line_error("missing_required_parameter", number, f"Missing required parameter: '{param}'.", param)
    assert isinstance(body, dict)
    return _add_line(body, custom_id, number, (start, len(line)), endpoint, config, intake)


def _add_line(
    body: dict[str, Any],
    custom_id: str,
    number: int,
    span: tuple[int, int],
    endpoint: str,
    config: SimulatorConfig,
    intake: Intake,
) -> dict[str, Any] | None:
    items = intake.items
    if body.get("stream"):
        return _line_error("invalid_value", number, "Streaming is not supported in batches.", "body.stream")
    model = str(body["model"])
    if not items.model:
        items.model = model
    if model != items.model:
        return _line_error("mismatched_model", number, f"Expected {items.model}, found {model}.", "body.model")
    refusal = check_body(body, endpoint, config.context_tokens)
    if refusal and refusal.code == missing_model(model, OPENAI).code:
        return _line_error("model_not_found", number, refusal.message, "body.model")
    items.add(custom_id, body_digest(body), *span)
    items.tokens += read_openai_prompt(body, endpoint).tokens
    intake.rejected.append(refusal is not None)
    return None


def _line_error(code: str, line: int, message: str, param: str | None = None) -> dict[str, Any]:
    return {"code": code, "line": line, "message": message, "param": param}


def _file_error(code: str, message: str) -> dict[str, Any]:
    return {"code": code, "line": None, "message": message, "param": None}


def read_kept_requests(blobs: BlobStore, blob: str) -> Items:
    """Read the lines that an earlier process kept of an Anthropic create."""
    items = Items()
    start = 0
    with blobs.open(blob) as source:
        for line in source:
            request = decode(line)
            items.add(request["custom_id"], body_digest(request["params"]), start, len(line))
            start += len(line)
    return items
