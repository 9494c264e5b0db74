"""Reads a reply as JSON and checks it against the schema the run asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from batchctl.core.errors import InputError

if TYPE_CHECKING:
    from jsonschema.protocols import Validator
    from referencing import Resource
    from referencing._core import Resolver

FENCE = "```"
SHOWN = 200  # characters of a problem
_STARTS = frozenset('{["-0123456789tfn')  # of a JSON value; most prose is told apart by its first letter


def parse_output(text: str) -> Any | None:
    """The JSON value of a reply, also of one that is a single fenced block; None where there is none.

    NaN, infinities, lone surrogates and nesting too deep to read are no JSON (field report 14).
    """
    body = _unfenced(text)
    if body[:1] not in _STARTS:
        return None
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None


def _unfenced(text: str) -> str:
    body = text.strip()
    if not (body.startswith(FENCE) and body.endswith(FENCE)):
        return body
    language, newline, inside = body[len(FENCE) : -len(FENCE)].partition("\n")
    return inside if newline and language.strip().lower() in ("", "json") else body


class ReplyCheck:
    """Tells what is wrong with a reply.

    Args:
        schema: a JSON Schema, of the draft its `$schema` names, else of 2020-12.

    Raises:
        InputError: it is no schema, or refers to something outside itself (nothing is fetched).
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from jsonschema import Draft202012Validator, SchemaError
        from jsonschema.validators import validator_for
        from referencing import Registry, Resource
        from referencing.exceptions import Unresolvable
        from referencing.jsonschema import DRAFT202012

        hint = "--schema takes a JSON Schema"
        kind = validator_for(schema, default=Draft202012Validator)
        try:
            kind.check_schema(dict(schema))
        except SchemaError as error:
            raise InputError(f"not a JSON Schema: {error.json_path}: {_short(error.message)}", hint=hint) from None
        resource = Resource.from_contents(schema, default_specification=DRAFT202012)
        registry: Registry[Any] = Registry()
        try:
            _look_up_references(resource, registry.resolver_with_root(resource))
        except Unresolvable as error:
            raise InputError(
                f"the schema refers to {error.ref!r}, which is not in it", hint="put the referenced part under $defs"
            ) from None
        self._validator: Validator = kind(schema, registry=registry)

    def problem(self, text: str | None, output: Any | None) -> str | None:
        """One line that says what is wrong, with its place in the reply; None for a good reply.

        Args:
            text: the reply as it came.
            output: the reply as `parse_output` read it.
        """
        from jsonschema.exceptions import best_match

        if output is None and (text is None or _unfenced(text).strip() != "null"):
            return "the reply is not JSON"
        try:
            error = best_match(self._validator.iter_errors(output))
        except RecursionError:
            return "the reply is nested too deeply to be checked"
        return None if error is None else f"{error.json_path}: {_short(error.message)}"


def _look_up_references(resource: Resource[Any], resolver: Resolver[Any]) -> None:
    """Find every `$ref` now, so that a schema that cannot work is refused before anything is sent."""
    inner = resolver.in_subresource(resource)
    contents = resource.contents
    if isinstance(contents, Mapping) and isinstance(contents.get("$ref"), str):
        inner.lookup(contents["$ref"])
    for part in resource.subresources():
        _look_up_references(part, inner)


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"
