"""From an input record to a provider request: id, prompt, body bytes. One bad record never costs the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from batchctl.core.body import BodyMaker, json_string
from batchctl.core.errors import InputError
from batchctl.core.ids import LONGEST_ID, id_text
from batchctl.core.plain import Spliced
from batchctl.core.reply import ReplyCheck
from batchctl.core.template import Template, TemplateError
from batchctl.core.tokens import continuation_bytes, estimate_text, estimate_texts, estimate_tokens
from batchctl.files.readers import Block, Record, decode
from batchctl.providers.base import RequestFormat
from batchctl.runs.settings import Settings

PROMPT_SLOT = "\x02batchctl prompt\x03"
SYSTEM_SLOT = "\x02batchctl system\x03"
NO_FIELD = "the prompt uses no field of the items, so every request is the same: a field is written {{ name }}"


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


class BuiltBlock(msgspec.Struct, gc=False):
    """The requests of a block of lines, one a line; all go to one endpoint and model.

    Args:
        columns: joined across they give the bodies.
    """

    ids: list[str]
    columns: list[list[bytes]]
    tokens: list[int]
    endpoint: str
    model: str | None
    repaired: int = 0


class Builder(Protocol):
    """Makes requests from records."""

    def __call__(self, record: Record, seq: int) -> Built:
        """Build the request of one record; raises ItemProblemError."""
        ...

    def block(self, block: Block, first_seq: int) -> BuiltBlock | None:
        """Build the requests of a block of lines; None where they must be taken one by one."""
        ...


def make_builder(settings: Settings, form: RequestFormat) -> Builder:
    """What turns the record with a sequence number into a request, for these settings.

    Raises:
        InputError: a template or parameter that no item could be sent with.
    """
    if settings.schema is not None:
        ReplyCheck(dict(settings.schema))  # a schema that cannot be used is refused before anything is bought
    return _FinishedRequests(settings, form) if settings.requests else _Rendered(settings, form)


def uses_no_field(settings: Settings) -> bool:
    """Whether no item changes its prompt, which is seldom meant."""
    texts = [text for text in (settings.prompt, settings.system) if text is not None]
    return bool(texts) and not any(
        Template.compile(text, name="--prompt", constants=settings.variables).names for text in texts
    )


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


def _texts(ids: list[Any]) -> list[str]:
    """Ids as text, all together where they are ordinary strings."""
    plain = set(map(type, ids)) == {str} and all(ids) and "".join(ids).isprintable()
    if plain and max(map(len, ids)) <= LONGEST_ID:
        return ids
    return [id_text(value) for value in ids]


class _Rendered:
    """Fills the prompt template; raw JSON tokens are spliced where that gives the same text."""

    def __init__(self, settings: Settings, form: RequestFormat) -> None:
        if settings.prompt is None:
            raise InputError(
                "no prompt", hint="give a template with --prompt FILE, or finished requests with --requests"
            )
        self._settings = settings
        self._id_field = None if settings.number_ids else settings.id_field
        self._target = (settings.endpoint, settings.model)
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
        spliced = self._system is None or self._constant_system is not None
        self._splice = self._prompt.splicer(self._id_field) if spliced else None
        before, after = self._maker.around(None if self._system is None else self._constant_system or b"")
        self._fixed_tokens = estimate_tokens(before + after)
        prompt = self._splice.layout if self._splice else []
        self._layout = [before, *prompt, after]
        self._prompt_text = b"".join(part for part in prompt if isinstance(part, bytes))

    def _render_constant_system(self) -> bytes | None:
        """The system prompt's JSON, where no item changes it."""
        if self._system is None or self._system.names:
            return None
        return json_string(self._system.render({}))

    def __call__(self, record: Record, seq: int) -> Built:
        """Build the request of one record; raises ItemProblemError."""
        if record.raw is not None:
            built = self.block(Block(record.line, 1, record.raw), seq)
            if built is not None:
                body = b"".join(b"".join(column) for column in built.columns)
                return Built(built.ids[0], body, built.tokens[0], *self._target, built.repaired > 0)
        return self._decoded(record, seq)

    def block(self, block: Block, first_seq: int) -> BuiltBlock | None:
        """Build the requests of a block of lines; None where they must be taken one by one."""
        if self._splice is None:
            return None
        lines = block.data.split(b"\n", block.count - 1)
        spliced = self._splice(lines)
        if spliced is None:
            return None
        columns = [spliced.columns[part] if isinstance(part, int) else [part] * block.count for part in self._layout]
        built = BuiltBlock([], columns, self._estimates(spliced, block.count), *self._target)
        if self._id_field is None:
            built.ids = [str(seq) for seq in range(first_seq, first_seq + block.count)]
        try:
            if spliced.odd:
                self._mend(built, spliced, lines, first_seq)
            if self._id_field is not None:
                built.ids = _texts(msgspec.json.decode(b"[%b]" % b",".join(spliced.ids)))
        except ValueError:
            return None  # one by one the words for what is wrong are found
        return built

    def _estimates(self, spliced: Spliced, count: int) -> list[int]:
        """The tokens of each request."""
        if not spliced.columns:
            return [self._fixed_tokens + round(estimate_text(self._prompt_text))] * count
        size, further = len(self._prompt_text), continuation_bytes(self._prompt_text)
        return estimate_texts(spliced.columns, self._fixed_tokens, size, further)

    def _mend(self, built: BuiltBlock, spliced: Spliced, lines: list[bytes], first_seq: int) -> None:
        """Make the few requests that cannot be spliced the slow way."""
        bodies = list(map(b"".join, zip(*built.columns, strict=True)))
        for place in spliced.odd:
            slow = self._decoded(Record(0, lines[place].strip()), first_seq + place)
            bodies[place], built.tokens[place] = slow.body, slow.tokens
            built.repaired += slow.repaired
            if self._id_field is not None:
                spliced.ids[place] = msgspec.json.encode(slow.id)
        built.columns = [bodies]

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
        return Built(item_id, body, self._fixed_tokens + round(tokens), *self._target, repaired)


class _FinishedRequests:
    """Takes the items as they are: requests in either provider's batch-file shape."""

    def __init__(self, settings: Settings, form: RequestFormat) -> None:
        self._settings = settings
        self._form = form

    def block(self, block: Block, first_seq: int) -> None:
        """Each is checked on its own."""

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
