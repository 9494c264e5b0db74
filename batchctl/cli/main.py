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

COMMANDS: dict[str, tuple[str, str]] = {
    "submit": ("sending:submit", "Plan and submit a run; prints its name and batch ids."),
    "poll": ("steering:poll", "One pass: settle, check, collect, send what waits."),
    "resubmit": ("steering:resubmit", "Send errored, expired and missing items again."),
    "run": ("sending:run", "Submit, poll and resubmit to the end."),
    "fanout": ("fanout:fanout", "Send items one by one at the account's limits."),
    "plan": ("sending:plan", "Say what submit would do; sends nothing."),
    "status": ("reading:status", "Where the runs stand, one line each."),
    "show": ("reading:show", "One run in full: counts, batches, tokens, cost, errors by kind."),
    "report": ("report:report", "Make one HTML page of a run, with plots."),
    "batches": ("reading:batches", "The batches of a run."),
    "items": ("reading:items", "The items of a run in input order."),
    "results": ("reading:results", "The lines of results.jsonl, as JSON lines."),
    "errors": ("reading:errors", "The lines of errors.jsonl: items that failed for good."),
    "events": ("reading:events", "What happened in a run, oldest first."),
    "cancel": ("steering:cancel", "Stop a run and cancel its batches."),
    "accept": ("steering:accept", "Close a run as complete with exceptions."),
    "adopt": ("steering:adopt", "Settle an unknown create by hand."),
    "doctor": ("doctor:doctor", "Say what is wrong with the state file and the runs."),
    "simulate": ("simulate:simulate", "Serve both providers' APIs on this machine."),
}
"""Each command, where it lives below `batchctl.cli`, and its one line of help: its module is imported only on use."""


class LazyGroup(click.Group):
    """A group whose commands are imported on use, so that `--help` and `status` start at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The commands in the order of the documentation."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(importlib.import_module(f"batchctl.cli.{module}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


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
