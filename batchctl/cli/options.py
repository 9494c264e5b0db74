"""The options of the commands that start runs, and how they become settings."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any

import click
import msgspec

from batchctl.cli.env import Decorator, option
from batchctl.core.durations import parse_duration, parse_size
from batchctl.core.errors import InputError
from batchctl.runs.settings import Settings


class Parsed(click.ParamType[Any]):
    """A text that a core function parses; its error becomes a usage error."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse a text; values that are parsed already pass."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except InputError as error:
            self.fail(f"{error.message}; {error.hint}" if error.hint else error.message, param, ctx)


class Finite(click.FloatRange):
    """A number in a range; Click lets through what is no number at all."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse a text."""
        number = float(super().convert(value, param, ctx))
        if not isfinite(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number


DURATION = Parsed("duration", parse_duration)
SIZE = Parsed("size", parse_size)
POSITIVE = click.IntRange(min=1)
FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


INPUT_OPTIONS: tuple[Decorator, ...] = (
    option("--provider", type=click.Choice(["anthropic", "openai"]), help="Whose API is used."),
    option("--model", help="Model name; finished requests (--requests) carry their own."),
    option("--prompt", type=FILE, help="Template file; `{{field}}` stands for a field of the item."),
    option("--system", type=FILE, help="Template file of the system prompt."),
    option("--var", "variables", multiple=True, metavar="K=V", help="A constant of the templates; `K=@FILE` reads it."),
    option("--id-field", default="id", show_default=True, help="The field that holds an item's id."),
    option("--number-ids", is_flag=True, help="Use each item's number as its id."),
    option(
        "--format",
        "input_format",
        type=click.Choice(["jsonl", "csv", "tsv", "parquet"]),
        help="Format of ITEMS where the name does not tell.",
    ),
    option("--max-tokens", type=POSITIVE, help="Most tokens of one answer."),
    option("--param", "params", multiple=True, metavar="K=JSON", help="Any parameter of the provider's request."),
    option("--beta", "betas", multiple=True, help="A beta of the provider, sent in the header of each call."),
    option("--schema", type=FILE, help="JSON Schema that every reply must meet."),
    option("--endpoint", help="Path of the API, such as /v1/responses; default: the provider's chat endpoint."),
    option("--requests", is_flag=True, help="ITEMS are finished provider requests in a batch-file shape."),
    option("--tag-ids", is_flag=True, help="Custom ids from run, batch and number instead of the item's id."),
    option("--skip-bad", is_flag=True, help="Send the rest; bad records go to errors.jsonl."),
    option("--base-url", help="Address of the API; default: the SDK's own variable."),
    option("--simulate", is_flag=True, help="Use a simulator inside this process; needs no key."),
    option("--faults", type=FILE, help="Fault file of the simulator, with --simulate."),
)

RUN_OPTIONS: tuple[Decorator, ...] = (
    option("--name", help="Name of the run; default: from the input's name and the settings."),
    option("--new", is_flag=True, help="Start another run although one with these settings exists."),
    option("--out", metavar="DIR_OR_URI", help="Folder of the result files; default: runs/NAME."),
    option(
        "--max-cost",
        type=Finite(min=0, min_open=True),
        metavar="USD",
        help="Send nothing that could take the run's cost over this.",
    ),
)

BATCH_OPTIONS: tuple[Decorator, ...] = (
    option("--max-requests", type=POSITIVE, help="Most requests in a batch; default: the provider's limit."),
    option("--max-bytes", type=SIZE, help="Most bytes of a batch, such as 100MB; default: the provider's limit."),
    option("--max-enqueued-tokens", type=POSITIVE, help="Most estimated input tokens in open batches at once."),
    option("--max-queued-requests", type=POSITIVE, help="Most requests in open batches at once."),
    option(
        "--max-resubmits", type=click.IntRange(min=0), default=2, show_default=True, help="Times an item is sent again."
    ),
    option(
        "--deadline",
        type=DURATION,
        default="24h",
        show_default=True,
        help="A batch still running after this counts as expired.",
    ),
    option("--interval", type=DURATION, help="Time between two looks at a batch; default 60s (simulated: 0.5s)."),
    option(
        "--settle-after",
        type=DURATION,
        help="A lost create counts as never accepted only this long after it; default 2m (simulated: 1s).",
    ),
)

SYNC_OPTIONS: tuple[Decorator, ...] = (
    option("--rpm", type=POSITIVE, help="The account's requests a minute; default: as its answers say."),
    option(
        "--tpm",
        type=POSITIVE,
        help="The account's tokens a minute (input on Anthropic, all on OpenAI); default: as its answers say.",
    ),
    option(
        "--share",
        type=Finite(min=0, min_open=True, max=1),
        help="Part of the limits to use; the rest stays free for others. Default 1.",
    ),
    option("--concurrency", type=POSITIVE, help="Most calls in flight; default: what the limits and latency ask for."),
    option("--max-attempts", type=POSITIVE, help="Calls an item gets before it fails; default 5."),
    option("--timeout", type=DURATION, help="Longest time of one call in all; default: by --max-tokens."),
    option(
        "--max-failure-rate",
        type=Finite(min=0, max=1),
        help="Stop when more of the last 50 items failed; default 0.2.",
    ),
)


def with_options(*groups: tuple[Decorator, ...]) -> Decorator:
    """Decorate a command with groups of options, in their order."""

    def decorate(command: Any) -> Any:
        for group in reversed(groups):
            for decorator in reversed(group):
                command = decorator(command)
        return command

    return decorate


def settings_from(given: dict[str, Any]) -> Settings:
    """Settings from the options of a command.

    Raises:
        InputError: a file or value that no run could be made with.
    """
    from batchctl.providers.registry import request_format

    if not given["provider"]:
        raise InputError("no provider", hint="give --provider anthropic or openai")
    form = request_format(given["provider"])
    if given["faults"] and not given["simulate"]:
        raise InputError("--faults goes with --simulate")
    if not given["requests"] and not given["model"]:
        raise InputError("no model", hint="give --model NAME")
    if given["requests"] and (given["prompt"] or given["system"]):
        raise InputError("--requests takes finished requests: --prompt and --system do not go with it")
    if given.get("max_cost") and not (given["max_tokens"] or form.default_max_tokens):
        raise InputError("--max-cost needs --max-tokens: without it an answer's cost has no bound")
    simulate = given["simulate"]
    return Settings(
        provider=given["provider"],
        endpoint=given["endpoint"] or form.default_endpoint,
        model=given["model"],
        prompt=_text(given["prompt"]),
        system=_text(given["system"]),
        variables=dict(_variable(text) for text in given["variables"]),
        id_field=given["id_field"],
        number_ids=given["number_ids"],
        max_tokens=given["max_tokens"] or form.default_max_tokens,
        params=dict(_param(text) for text in given["params"]),
        betas=tuple(given["betas"]),
        schema=_schema(given["schema"]),
        requests=given["requests"],
        tag_ids=given["tag_ids"],
        skip_bad=given["skip_bad"],
        base_url=given["base_url"],
        simulate=simulate,
        max_requests=given.get("max_requests"),
        max_bytes=given.get("max_bytes"),
        max_enqueued_tokens=given.get("max_enqueued_tokens"),
        max_queued_requests=given.get("max_queued_requests"),
        max_resubmits=given.get("max_resubmits", 2),
        deadline=given.get("deadline", 24 * 3600.0),
        interval=given.get("interval") or (0.5 if simulate else 60.0),
        settle_after=given.get("settle_after") or (1.0 if simulate else 120.0),
        max_cost=given.get("max_cost"),
        **sync_settings(given),
    )


def sync_settings(given: dict[str, Any]) -> dict[str, Any]:
    """The settings of the sync lane that were given."""
    names = ("rpm", "tpm", "share", "concurrency", "max_attempts", "timeout", "max_failure_rate")
    return {name: given[name] for name in names if given.get(name) is not None}


def _text(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 (byte {error.start})", hint="save it as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def _pair(text: str, option_name: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"{option_name} {text!r}: give it as NAME=VALUE")
    return key, value


def _variable(text: str) -> tuple[str, Any]:
    key, value = _pair(text, "--var")
    if not value.startswith("@"):
        return key, value
    path = Path(value[1:])
    content = _text(path)
    if path.suffix != ".json":
        return key, content
    return key, _json(content or "", f"--var {key}: {path}")


def _param(text: str) -> tuple[str, Any]:
    key, value = _pair(text, "--param")
    return key, _json(value, f"--param {key}", 'a text needs quotes: K="value"')


def _schema(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    schema = _json(_text(path) or "", f"--schema {path}")
    if not isinstance(schema, dict):
        raise InputError(f"--schema {path}: a JSON Schema is an object")
    return schema


def _json(text: str, what: str, hint: str | None = None) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InputError(f"{what} is not JSON: {error}", hint=hint) from None
