"""Reading the requests of a new batch: Anthropic's create body, OpenAI's input file, and either one again later.

Anthropic refuses the whole create for a bad id and shows bad parameters per item at the end. OpenAI accepts every
create and fails the whole file later, with line numbers.
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
from batchctl.simulator.errors import ApiError
from batchctl.simulator.kinds import MISSING_MODELS
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
    reader = _FileReader(endpoint, config.context_tokens)
    start = 0
    with blobs.open(blob) as source:
        for number, line in enumerate(source, 1):
            reader.read_line(line, number, start)
            start += len(line)
    intake = reader.intake
    count = len(intake.items)
    if start == 0:
        intake.errors = [_error("empty_file", "The input file is empty.")]
    elif count > config.openai_max_requests:
        most = config.openai_max_requests
        intake.errors = [_error("too_many_tasks", f"The file has {count} requests, more than {most}.")]
    return intake


class _FileReader:
    """Reads line after line; one bad line fails the file, so the first hundred errors are all that is kept."""

    def __init__(self, endpoint: str, context_tokens: int) -> None:
        self.intake = Intake()
        self._endpoint = endpoint
        self._context_tokens = context_tokens
        self._seen: set[str] = set()

    def read_line(self, line: bytes, number: int, start: int) -> None:
        """Take in one line or note what is wrong with it."""
        try:
            request = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            request = None
        if not isinstance(request, dict):
            self._note(_error("invalid_json_line", "This line is not parseable as a JSON object.", number))
            return
        error = self._envelope_error(request, number) or self._body_error(request["body"], number)
        if error:
            self._note(error)
            return
        body = request["body"]
        items = self.intake.items
        items.add(request["custom_id"], body_digest(body), start, len(line))
        items.tokens += read_openai_prompt(body, self._endpoint).tokens
        self.intake.rejected.append(check_body(body, self._endpoint, self._context_tokens) is not None)

    def _note(self, error: dict[str, Any]) -> None:
        if len(self.intake.errors) < _SHOWN_ERRORS:
            self.intake.errors.append(error)

    def _envelope_error(self, request: dict[str, Any], number: int) -> dict[str, Any] | None:
        custom_id = request.get("custom_id")
        if not isinstance(custom_id, str) or not custom_id:
            return _error("missing_required_parameter", "Missing 'custom_id'.", number, "custom_id")
        if custom_id in self._seen:
            return _error("duplicate_custom_id", f"The custom_id '{custom_id}' is used twice.", number, "custom_id")
        self._seen.add(custom_id)
        if request.get("method") != "POST":
            return _error("invalid_method", "The method must be POST.", number, "method")
        if request.get("url") != self._endpoint:
            return _error("url_mismatch", f"The url is not the endpoint {self._endpoint}.", number, "url")
        if missing := missing_parameter(request.get("body"), self._endpoint):
            param = missing if missing == "body" else f"body.{missing}"
            return _error("missing_required_parameter", f"Missing required parameter: '{param}'.", number, param)
        return None

    def _body_error(self, body: dict[str, Any], number: int) -> dict[str, Any] | None:
        items = self.intake.items
        model = str(body["model"])
        items.model = items.model or model
        if body.get("stream"):
            return _error("invalid_value", "Streaming is not supported in batches.", number, "body.stream")
        if model != items.model:
            return _error("mismatched_model", f"Expected {items.model}, found {model}.", number, "body.model")
        if MISSING_MODELS.match(model):
            return _error("model_not_found", f"The model `{model}` does not exist.", number, "body.model")
        return None


def _error(code: str, message: str, line: int | None = None, param: str | None = None) -> dict[str, Any]:
    return {"code": code, "line": line, "message": message, "param": param}


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
