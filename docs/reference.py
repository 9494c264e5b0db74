"""Writes the command reference from the commands themselves; cog calls it, and `make docs-check` holds it."""

from __future__ import annotations

import click

from batchctl.cli.main import COMMANDS, cli


def reference() -> str:
    """The whole page as Markdown."""
    context = click.Context(cli, info_name="batchctl", **cli.context_settings)
    parts = [_options(cli, context)]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        inner = click.Context(command, parent=context, info_name=name)
        usage = " ".join(command.collect_usage_pieces(inner))
        parts.append(f"## {name}\n\n`batchctl {name} {usage}`\n\n{_help(command)}\n\n{_options(command, inner)}")
    return "\n".join(parts)


def _help(command: click.Command) -> str:
    return "\n".join(line.strip() for line in (command.help or "").strip().split("\n"))


def _options(command: click.Command, context: click.Context) -> str:
    rows = ["| option | variable | meaning |", "| --- | --- | --- |"]
    for parameter in command.get_params(context):
        if not isinstance(parameter, click.Option) or "--help" in parameter.opts:
            continue
        extra = parameter.get_help_extra(context)
        names = parameter.get_help_record(context)
        assert names is not None
        variable = f"`{parameter.envvar}`" if parameter.envvar else ""
        default = f" Default: {extra['default']}." if extra.get("default") else ""
        rows.append(f"| `{names[0].replace('|', '/')}` | {variable} | {parameter.help or ''}{default} |")
    return "\n".join(rows) + "\n"
