"""Jinja2 in a closed room: templates see the item's data and nothing else.

Imported only where a template is compiled, for Jinja2 is slow to import.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, Undefined, UndefinedError, nodes
from jinja2.runtime import LoopContext
from jinja2.sandbox import SandboxedEnvironment, safe_range

from batchctl.core.plain import Render, Slot, TemplateError, missing, shown

_NOT_FIELDS = frozenset({"self", "super", "caller", "loop", "varargs", "kwargs"})
_IMPURE_FILTERS = ("attr", "random")


class _Environment(SandboxedEnvironment):
    """Attributes are keys of the data; Python's own are out of reach."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """A key of a mapping, or a word about a loop."""
        if isinstance(obj, LoopContext):
            return super().getattr(obj, attribute)
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """An element of the data; anything else is undefined."""
        if isinstance(obj, Mapping | list | tuple | str | Undefined):
            try:
                return obj[argument]
            except (LookupError, TypeError):
                pass
        return self.undefined(obj=obj, name=argument)


def environment() -> SandboxedEnvironment:
    """The engine: strict about missing fields, no escaping, `range` (bounded) as the only global."""
    engine = _Environment(undefined=StrictUndefined, autoescape=False, finalize=_finalize)
    engine.globals = {"range": safe_range}
    for name in _IMPURE_FILTERS:
        del engine.filters[name]
    engine.filters["tojson"] = _to_json
    return engine


def _finalize(value: Any) -> str:
    return str(value) if isinstance(value, Undefined) else shown(value)


def _to_json(value: Any, indent: int | None = None) -> str:
    """Jinja2's own filter escapes for HTML, which no prompt wants."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def refuse_files(tree: nodes.Template) -> None:
    """Raise a syntax error for a tag that reads another template."""
    for node in tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
        raise TemplateSyntaxError("a prompt cannot read other templates", node.lineno)


def plain_parts(tree: nodes.Template, constants: Mapping[str, Any]) -> list[str | Slot] | None:
    """The template as texts and slots, constants put in; None where it is more than that."""
    parts: list[str | Slot] = []
    for output in tree.body:
        if not isinstance(output, nodes.Output):
            return None
        for node in output.nodes:
            part = _plain_part(node, constants)
            if part is None:
                return None
            if isinstance(part, str) and parts and isinstance(parts[-1], str):
                parts[-1] += part
            else:
                parts.append(part)
    return parts


def _plain_part(node: nodes.Expr, constants: Mapping[str, Any]) -> str | Slot | None:
    if isinstance(node, nodes.TemplateData):
        return node.data
    if not isinstance(node, nodes.Name) or node.name in _NOT_FIELDS or node.name == "range":
        return None
    return shown(constants[node.name]) if node.name in constants else Slot(node.name)


def renderer(compiled: Template, template: str, names: frozenset[str], constants: Mapping[str, Any]) -> Render:
    """What fills in a template that needs the engine."""

    def render(fields: Mapping[str, Any]) -> str:
        data = {name: fields[name] for name in names if name in fields}
        data.update(constants)
        try:
            return compiled.render(data)
        except TemplateError:
            raise
        except UndefinedError as error:
            undefined = next((name for name in sorted(names) if f"{name!r} is undefined" == str(error)), None)
            raise (
                TemplateError(f"{template}: {error}") if undefined is None else missing(undefined, template)
            ) from None
        except Exception as error:  # noqa: BLE001  # on one record's values a template may fail in any way
            raise TemplateError(f"{template} fails on this item: {type(error).__name__}: {error}") from None

    return render
