"""Prompt templates: text with `{{ field }}` and, where asked for, all of Jinja2 in a closed room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchctl.core.errors import InputError
from batchctl.core.plain import Parts, Render, Splicer, TemplateError, joiner

__all__ = ["Splicer", "Template", "TemplateError"]

UNPLAIN = frozenset('"\\')  # characters that JSON escapes
WHOLE_ITEM = "item"  # names the fields that are no identifiers, such as most headers of spreadsheets


class Template:
    """A compiled prompt template; made by `compile`.

    Args:
        names: the item fields it uses.
        constants: the constants it uses.
        parts: the template as texts and slots, None where it is more than that.
    """

    def __init__(
        self, name: str, names: frozenset[str], constants: frozenset[str], parts: Parts | None, render: Render
    ) -> None:
        self.names = names
        self._name = name
        self._constants = constants
        self._parts = parts
        self._render = render

    @classmethod
    def compile(cls, source: str, *, name: str, constants: Mapping[str, Any]) -> Template:
        """Compile a template.

        Args:
            source: the template's text.
            name: what messages call it, such as its file.
            constants: JSON-ready values that are the same for every item.

        Raises:
            InputError: a syntax error, or a tag that reads another template.
        """
        from jinja2 import TemplateSyntaxError, meta

        from batchctl.core import sandbox

        engine = sandbox.environment()
        try:
            tree = engine.parse(source)
            sandbox.refuse_files(tree)
            used = meta.find_undeclared_variables(tree)
            own = {key: value for key, value in constants.items() if key in used}
            names = frozenset(used - own.keys())
            parts = sandbox.plain_parts(tree, own)
            if parts is None:
                render = sandbox.renderer(engine.from_string(source), name, names, own)
            else:
                render = joiner(parts, name)
        except TemplateSyntaxError as error:
            raise InputError(
                f"{name}, line {error.lineno}: {error.message}",
                hint="a placeholder is {{ field }}; braces that are text stand between {% raw %} and {% endraw %}",
            ) from None
        return cls(name, names, frozenset(own), parts, render)

    def render(self, fields: Mapping[str, Any]) -> str:
        """Fill the template with an item's fields; `item` is all of them, so `{{ item["Ticket ID"] }}` works too.

        Raises:
            TemplateError: a placeholder is neither a field nor a constant, or both, or the template fails on this
                item's values.
        """
        for constant in self._constants:
            if constant in fields:
                raise TemplateError(
                    f"{self._name} uses {constant!r}, which is a field of the item and a --var too: rename one",
                    constant,
                )
        if WHOLE_ITEM in self.names and WHOLE_ITEM not in fields:
            return self._render({**fields, WHOLE_ITEM: fields})
        return self._render(fields)

    def blank(self, fields: Mapping[str, Any]) -> bool:
        """Whether the fields the template uses are all there and all empty, blank or null (field report 44)."""
        return bool(self.names) and all(name in fields and _is_blank(fields[name]) for name in self.names)

    def splicer(self, id_field: str | None = None) -> Splicer | None:
        """What fills the template with raw JSON tokens; None where it is more than text and fields."""
        odd = any(name in UNPLAIN or not name.isprintable() for name in id_field or "")
        return None if odd or self._parts is None else Splicer(self._parts, self._constants, id_field)


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip()) or value in ([], {})
