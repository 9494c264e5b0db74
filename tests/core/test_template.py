"""Prompt templates: one join or one splice gives what the engine gives, and nothing outside the data is in reach."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.core.errors import InputError
from batchctl.core.template import Template, TemplateError

NAMES = ["text", "who", "_x", "größe"]

anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
blanks = st.text("  \t\n\r\v\f\x1c\x1f\x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000", max_size=5)
strings = anything | blanks
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything, inner, max_size=3),
    max_leaves=5,
)
literals = st.text(st.characters(exclude_characters="{}#%", exclude_categories=["Cs"]), max_size=20)
placeholders = st.sampled_from(
    [f"{{{{ {name} }}}}" for name in NAMES] + ["{{text}}", "{{-who -}}", "{{ text|string }}"]
)
plain_sources = st.lists(literals | placeholders.filter(lambda text: "|" not in text), max_size=6).map("".join)


def compiled(source: str, **constants: Any) -> Template:
    """A template called prompt.txt."""
    return Template.compile(source, name="prompt.txt", constants=constants)


def spliced(template: Template, line: bytes) -> bytes | None:
    """The prompt's JSON made from one line, None where it is left to the slow way."""
    splice = template.splicer()
    assert splice is not None
    made = splice([line])
    if made is None or made.odd:
        return None
    return b"".join(part if isinstance(part, bytes) else made.columns[part][0] for part in splice.layout)


def by_engine(source: str, fields: Mapping[str, Any], **constants: Any) -> str:
    """What Jinja2 itself makes of a template; the tag at the end keeps the join out of the way."""
    template = Template.compile(source + "{{ '' }}", name="prompt.txt", constants=constants)
    assert template.splicer() is None
    return template.render(fields)


@given(plain_sources, st.fixed_dictionaries(dict.fromkeys(NAMES, values)))
def test_the_join_equals_the_engine(source: str, fields: dict[str, Any]) -> None:
    """A template of text and fields is filled as Jinja2 fills it, to the byte."""
    if not source.endswith(("\n", "\r")):  # there the engine drops a newline, which the added tag would keep
        assert compiled(source).render(fields) == by_engine(source, fields)


@given(plain_sources, st.fixed_dictionaries({"who": strings, "text": strings, "größe": strings}), values)
def test_the_splice_equals_the_rendering(source: str, fields: dict[str, Any], constant: Any) -> None:
    """Joining raw JSON tokens gives the JSON string of the rendered prompt, however the input was escaped."""
    template = compiled(source, _x=constant)
    for ascii_only in (True, False):
        made = spliced(template, json.dumps(fields, ensure_ascii=ascii_only).encode())
        if made is not None:
            assert json.loads(b'"' + made + b'"') == template.render(fields)
            assert not template.blank(fields)


@pytest.mark.parametrize(
    "text", ["I lost my card.", 'say "no"\\\n\tnow / then', "карта", "失くした", "🙂 ok", "card\u2028 lost", "\0x"]
)
def test_ordinary_texts_are_spliced(text: str) -> None:
    """The fast way is taken for text of any script."""
    template = compiled("Item: {{ text }}\n(end)")
    made = spliced(template, msgspec.json.encode({"id": 1, "text": text}))
    assert made is not None
    assert json.loads(b'"' + made + b'"') == template.render({"text": text})


@pytest.mark.parametrize(
    "record",
    [
        b'{"who": "me"}',
        b'{"text": 7, "who": "me"}',
        b'{"text": null, "who": "me"}',
        b'{"text": ["a"], "who": "me"}',
        b'{"text": "abc \\udc3d xyz", "who": "me"}',
        b'{"text": "  ", "who": "\\t\\n \\u2003"}',
        '{"text": "\u3000", "who": ""}'.encode(),
        b'{"text": "a", "who": "me", "label": "x"}',
    ],
)
def test_the_splice_leaves_odd_items_to_the_slow_way(record: bytes) -> None:
    """A field that is missing, no string, half a character or blank is judged where there are words for it.

    Field reports 15 and 44.
    """
    assert spliced(compiled("{{ text }} {{ who }} {{ label }}", label="fixed"), record) is None


def test_an_odd_item_leaves_the_others_spliced() -> None:
    """Lines are taken together, and what is odd about one costs itself only; a blank line, or none, costs them all."""
    splice = compiled("{{ text }}!").splicer("id")
    assert splice is not None
    lines = [b'{"id": "a", "text": "x"}', b'{"id": 2, "text": 7}', b'{"text": "y"}', b' {"text": "z", "id": 4}\r']
    made = splice(lines)
    assert made is not None
    assert made.odd == [1, 2]
    assert [made.ids[place] for place in (0, 3)] == [b'"a"', b"4"]
    assert [made.columns[0][place] for place in (0, 3)] == [b"x", b"z"]
    for other in (b"", b"[]", b'{"text": "a"}{"text": "b"}', b'{"text": "a"'):
        assert splice([*lines, other]) is None


def test_one_text_is_enough_to_splice() -> None:
    """An item is only blank when all its fields are."""
    assert spliced(compiled("{{ text }}{{ who }}"), b'{"text": "", "who": "x\\/\\u00e9"}') == b"x\\/\\u00e9"


def test_a_template_without_fields_is_spliced_too() -> None:
    """A constant prompt is no blank one."""
    template = compiled('say "{{ word }}"', word="é")
    assert spliced(template, b"{}") == 'say \\"é\\"'.encode()
    assert not template.names
    assert not template.blank({})


@pytest.mark.parametrize(
    ("source", "fields", "text"),
    [
        ("{{ x }}", {"x": None}, ""),
        ("{{ x }}", {"x": True}, "true"),
        ("{{ x }}", {"x": 1.0}, "1.0"),
        ("{{ x }}", {"x": {"a": ["é", None]}}, '{"a":["é",null]}'),
        ("a\r\nb\n", {}, "a\nb"),
        ("a {# note #}{% raw %}{{ x }}{% endraw %}", {}, "a {{ x }}"),
        (
            "{% for a in x %}{{ loop.index }}{{ a.b }}{{ ',' if not loop.last }}{% endfor %}",
            {"x": [{"b": 1}, {"b": 2}]},
            "11,22",
        ),
        ("{% if x is defined %}{{ x }}{% else %}none{% endif %}", {}, "none"),
        ("{{ x.items }}", {"x": {"items": 3}}, "3"),
        ("{{ x[:2] }}{{ x|upper }}", {"x": "abc"}, "abABC"),
        ("{{ x|tojson }}", {"x": "<é>"}, '"<é>"'),
        ("{{ x }}", {"x": "{{ y }} <b>"}, "{{ y }} <b>"),
        ("{% for n in range(3) %}{{ n }}{% endfor %}", {}, "012"),
    ],
)
def test_rendering(source: str, fields: dict[str, Any], text: str) -> None:
    """Values are shown as JSON, strings as they are, and the language of templates works on the data."""
    assert compiled(source).render(fields) == text


@pytest.mark.parametrize(
    "source",
    [
        "{{ x.__class__ }}",
        "{{ x['__class__'] }}",
        "{{ x|attr('__class__') }}",
        "{{ x.upper() }}",
        "{{ d.keys() }}",
        "{{ cycler }}",
        "{{ lipsum.__globals__ }}",
        "{{ namespace() }}",
        "{{ self.__init__ }}",
        "{{ self }}",
        "{% for a in d %}{{ loop.__class__ }}{% endfor %}",
        "{{ range(10**9)|list }}",
        "{{ range.__self__ }}",
        "{{ [1]|random }}",
        "{{ x|map('upper') }}",
    ],
)
def test_nothing_outside_the_data_is_in_reach(source: str) -> None:
    """A template reaches neither Python's attributes nor globals, randomness or endless loops."""
    with pytest.raises((TemplateError, InputError)):
        compiled(source).render({"x": "v", "d": {"a": 1}})


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("{{ a", 1),
        ("one\n{% if %}", 2),
        ("one\ntwo {{ x|nofilter }}", 2),
        ("{% include 'x' %}", 1),
        ("\n{% import 'x' as y %}", 2),
        ("{% from 'x' import y %}", 1),
        ("{% extends 'x' %}", 1),
    ],
)
def test_syntax_errors_name_file_and_line(source: str, line: int) -> None:
    """What cannot be compiled is refused with its place and a way out."""
    with pytest.raises(InputError, match=rf"prompt\.txt, line {line}: ") as caught:
        compiled(source)
    assert caught.value.hint


@pytest.mark.parametrize(
    "source", ["{{ nope }}", "{{ nope }}{{ ''}}", "{{ nope.a }}", "{% for a in nope %}{% endfor %}", "{{ nope + 1 }}"]
)
def test_an_unknown_placeholder_is_named(source: str) -> None:
    """A placeholder that is neither field nor constant carries its name."""
    with pytest.raises(TemplateError, match=r"prompt\.txt uses 'nope', which is neither") as caught:
        compiled(source, other=1).render({"text": "x"})
    assert caught.value.field == "nope"


@pytest.mark.parametrize("source", ["{{ text }}", "{{ text|upper }}"])
def test_a_name_that_is_field_and_constant_is_refused(source: str) -> None:
    """Neither of two values is chosen silently."""
    with pytest.raises(TemplateError, match="a field of the item and a --var too") as caught:
        compiled(source, text="constant").render({"text": "field"})
    assert caught.value.field == "text"


def test_an_unused_constant_may_share_a_field_name() -> None:
    """Only names the template uses can clash."""
    assert compiled("{{ who }}", text="constant").render({"text": "field", "who": "me"}) == "me"


@pytest.mark.parametrize("source", ["{{ x + 1 }}", "{{ x.a }}", "{{ x / 0 }}"])
def test_a_template_that_fails_on_one_item_is_that_items_error(source: str) -> None:
    """One odd record does not stop the others."""
    with pytest.raises(TemplateError, match=r"prompt\.txt"):
        compiled(source).render({"x": "text"})


def test_names_are_the_items_fields() -> None:
    """The fields a template uses are known without an item."""
    assert compiled("{{ a }}{% if b %}{{ c|upper }}{% endif %}{{ k }}", k=1).names == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("fields", "blank"),
    [
        ({"a": "", "b": None}, True),
        ({"a": " \u3000\n", "b": []}, True),
        ({"a": "", "b": {}}, True),
        ({"a": "", "b": "x"}, False),
        ({"a": "", "b": 0}, False),
        ({"a": "", "b": False}, False),
        ({"a": ""}, False),
    ],
)
def test_blank_items_are_told(fields: dict[str, Any], *, blank: bool) -> None:
    """An item is blank when all fields of the template are there and say nothing (field report 44)."""
    assert compiled("{{ a }}{{ b }}").blank(fields) is blank


def test_fields_that_are_no_identifiers_are_reached_through_the_item() -> None:
    """A spreadsheet's header with a blank in it can be used; a field named `item` keeps its meaning."""
    template = Template.compile('{{ item["Ticket ID"] }}: {{ text }}', name="p", constants={})
    assert template.render({"Ticket ID": "7", "text": "x"}) == "7: x"
    assert Template.compile("{{ item }}", name="p", constants={}).render({"item": "own"}) == "own"
    assert Template.compile("{{ item }}", name="p", constants={}).render({"a": "b"}) == '{"a":"b"}'
