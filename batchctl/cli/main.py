"""The entry point: the command group, options every command has, and how an error leaves the program."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from batchctl import __version__
from batchctl.cli.env import option
from batchctl.core.errors import BatchctlError

DEFAULT_STATE = Path("state") / "batchctl.db"

COMMANDS: dict[str, str] = {
    "submit": "batchctl.cli.sending:submit",
    "poll": "batchctl.cli.steering:poll",
    "resubmit": "batchctl.cli.steering:resubmit",
    "run": "batchctl.cli.sending:run",
    "fanout": "batchctl.cli.fanout:fanout",
    "plan": "batchctl.cli.sending:plan",
    "status": "batchctl.cli.reading:status",
    "show": "batchctl.cli.reading:show",
    "report": "batchctl.cli.report:report",
    "batches": "batchctl.cli.reading:batches",
    "items": "batchctl.cli.reading:items",
    "results": "batchctl.cli.reading:results",
    "errors": "batchctl.cli.reading:errors",
    "events": "batchctl.cli.reading:events",
    "cancel": "batchctl.cli.steering:cancel",
    "accept": "batchctl.cli.steering:accept",
    "adopt": "batchctl.cli.steering:adopt",
    "doctor": "batchctl.cli.doctor:doctor",
    "simulate": "batchctl.cli.simulate:simulate",
}
"""Each command and where it lives; a command's module is imported only when it is asked for."""


class LazyGroup(click.Group):
    """A group whose commands are imported on use, so that `--help` and `status` start at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The commands in the order of the documentation."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one command."""
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, name = target.split(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    default=DEFAULT_STATE,
    show_default=True,
    help="The state file.",
)
@option("--log-file", type=click.Path(dir_okay=False, path_type=Path), help="Append events here.")
@option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How the log file is written.",
)
@option("--quiet", is_flag=True, help="Say only warnings and errors.")
@option("--no-progress", is_flag=True, help="Plain lines instead of a live display.")
@click.version_option(__version__, prog_name="batchctl")
@click.pass_context
def cli(ctx: click.Context, /, **options: Any) -> None:
    """One model answer per item, at the batch price: nothing lost, nothing paid twice."""
    ctx.obj = options


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line; expected errors become one line, a hint and their exit code."""
    try:
        cli.main(args=arguments, prog_name="batchctl", standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except BatchctlError as error:
        say_error(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        from batchctl.files.durable import named

        problem = named(error)
        if problem is None:
            raise
        say_error(problem)
        sys.exit(problem.exit_code)
    sys.exit(0)


def say_error(error: BatchctlError) -> None:
    """One error and its way out, on stderr."""
    from batchctl.cli.text import safe

    click.echo(f"batchctl: {safe(error.message)}", err=True)
    if error.hint:
        click.echo(f"hint: {safe(error.hint)}", err=True)
