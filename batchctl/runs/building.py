"""From an input record to a provider request: id, prompt, body bytes. One bad record never costs the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from batchctl.core.body import BodyMaker, json_string
from batchctl.core.errors import InputError
from batchctl.core.ids import id_text
from batchctl.core.reply import ReplyCheck
from batchctl.core.template import Template, TemplateError
from batchctl.core.tokens import estimate_text, estimate_tokens
from batchctl.files.readers import Record, decode
from batchctl.providers.base import RequestFormat
from batchctl.runs.settings import Settings

PROMPT_SLOT = "\x02batchctl prompt\x03"
SYSTEM_SLOT = "\x02batchctl system\x03"

_VALUE = msgspec.json.Decoder().decode


class ItemProblemError(ValueError):
    """A record that cannot become a request.

    Args:
        id: the item's id, where it could be read.
        fields: the names that are there, where one is missing.
    """

    def __init__(self, reason: str, *, id: str | None = None, fields: Iterable[str] = ()) -> None:  # noqa: A002
        super().__init__(reason if id is None else f"item {id!r}: {reason}")
        self.reason = reason
        self.id = id
        self.fields = tuple(fields)


class Built(msgspec.Struct, gc=False):
    """One request ready to be spooled.

    Args:
        id: the item's id as the user wrote it.
        tokens: estimated input tokens.
        model: None where the request names none.
        repaired: text that was not valid Unicode was replaced.
    """

    id: str
    body: bytes
    tokens: int
    endpoint: str
    model: str | None
    repaired: bool = False


def make_builder(settings: Settings, form: RequestFormat) -> Callable[[Record, int], Built]:
    """The function that turns the record with a sequence number into a request, for these settings.

    Raises:
        InputError: a template or parameter that no item could be sent with.
    """
    if settings.schema is not None:
        ReplyCheck(dict(settings.schema))  # a schema that cannot be used is refused before anything is bought
    return _FinishedRequests(settings, form) if settings.requests else _Rendered(settings, form)


def _item_id(settings: Settings, fields: Mapping[str, Any], seq: int) -> str:
    if settings.number_ids:
        return str(seq)
    if settings.id_field not in fields:
        raise ItemProblemError(
            f"no field {settings.id_field!r} for the id (other name: --id-field, none: --number-ids)", fields=fields
        )
    try:
        return id_text(fields[settings.id_field])
    except ValueError as error:
        raise ItemProblemError(f"field {settings.id_field!r}: {error}") from None


class _Rendered:
    """Fills the prompt template; raw JSON tokens are spliced where that gives the same text."""

    def __init__(self, settings: Settings, form: RequestFormat) -> None:
        if settings.prompt is None:
            raise InputError(
                "no prompt", hint="give a template with --prompt FILE, or finished requests with --requests"
            )
        self._settings = settings
        self._id_field = None if settings.number_ids else settings.id_field
        self._endpoint, self._model = settings.endpoint, settings.model
        self._prompt = Template.compile(settings.prompt, name="--prompt", constants=settings.variables)
        self._system = (
            None
            if settings.system is None
            else Template.compile(settings.system, name="--system", constants=settings.variables)
        )
        body = form.body(
            endpoint=settings.endpoint,
            model=settings.model or "",
            prompt=PROMPT_SLOT,
            system=None if settings.system is None else SYSTEM_SLOT,
            max_tokens=settings.max_tokens,
            params=settings.params,
        )
        problems = form.problems(body, settings.endpoint)
        if problems:
            raise InputError("; ".join(problems), hint="see --param, --max-tokens and --model")
        self._maker = BodyMaker(body, PROMPT_SLOT, None if settings.system is None else SYSTEM_SLOT)
        self._constant_system = self._render_constant_system()
        self._splice = self._prompt.splicer() if self._system is None or self._constant_system is not None else None
        self._tokens_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
        self._before, self._after = self._maker.around(None if self._system is None else self._constant_system or b"")
        self._fixed_tokens = estimate_tokens(self._before + self._after)

    def _render_constant_system(self) -> bytes | None:
        """The system prompt's JSON, where no item changes it."""
        if self._system is None or self._system.names:
            return None
        return json_string(self._system.render({}))

    def __call__(self, record: Record, seq: int) -> Built:
        """Build the request of one record; raises ItemProblemError."""
        if self._splice is None or record.raw is None:
            return self._decoded(record, seq)
        try:
            tokens = self._tokens_of(record.raw)
            prompt = self._splice(tokens)
            item_id = str(seq) if self._id_field is None else id_text(_VALUE(tokens[self._id_field]))
        except (ValueError, KeyError, RecursionError):
            prompt = None
        if prompt is None:
            return self._decoded(record, seq)  # which finds the words for what is wrong
        return Built(
            item_id,
            b"".join((self._before, prompt, self._after)),
            self._fixed_tokens + round(estimate_text(prompt)),
            self._endpoint,
            self._model,
        )

    def _decoded(self, record: Record, seq: int) -> Built:
        repaired = False
        if record.fields is None:
            try:
                fields, repaired = decode(record)
            except ValueError as error:
                raise ItemProblemError(str(error)) from None
        else:
            fields = record.fields
        item_id = _item_id(self._settings, fields, seq)
        if self._prompt.blank(fields):
            raise ItemProblemError("every field of the prompt is empty", id=item_id)
        try:
            prompt = json_string(self._prompt.render(fields))
            system = self._constant_system
            if self._system is not None and system is None:
                system = json_string(self._system.render(fields))
        except ValueError as error:
            lacks = isinstance(error, TemplateError) and error.field is not None and error.field not in fields
            raise ItemProblemError(str(error), id=item_id, fields=fields if lacks else ()) from None
        tokens = estimate_text(prompt)
        if system is not None and system is not self._constant_system:
            tokens += estimate_text(system)
        body = self._maker.make(prompt, system)
        return Built(item_id, body, self._fixed_tokens + round(tokens), self._endpoint, self._model, repaired)


class _FinishedRequests:
    """Takes the items as they are: requests in either provider's batch-file shape."""

    def __init__(self, settings: Settings, form: RequestFormat) -> None:
        self._settings = settings
        self._form = form

    def __call__(self, record: Record, seq: int) -> Built:
        """Check and re-serialise one request; raises ItemProblemError."""
        try:
            fields, repaired = (record.fields, False) if record.fields is not None else decode(record)
            item_id, endpoint, body = self._form.parse_request(fields)
            item_id = str(seq) if self._settings.number_ids else id_text(item_id)
        except ValueError as error:
            raise ItemProblemError(str(error)) from None
        problems = self._form.problems(body, endpoint)
        if problems:
            raise ItemProblemError("; ".join(problems), id=item_id)
        data = msgspec.json.encode(body)
        model = body.get("model")
        return Built(
            item_id, data, estimate_tokens(data), endpoint, model if isinstance(model, str) else None, repaired
        )
