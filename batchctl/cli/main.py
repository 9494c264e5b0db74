"""The entry point: the command group, options every command has, and how an error leaves the program."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from batchctl import __version__
from batchctl.cli.env import option
from batchctl.cli.text import commands_for
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


class FilePath(click.Path):
    """A file that may not be there yet; an empty name is none."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse an empty name, which would be the current folder."""
        if not str(value):
            self.fail("give the name of a file", param, ctx)
        return super().convert(value, param, ctx)


class LazyGroup(click.Group):
    """A group whose commands are imported on use, so that `--help` and `status` start at once."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or name those that look like it."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            import difflib

            close = " or ".join(repr(match) for match in difflib.get_close_matches(name, COMMANDS, n=2))
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {close}?" if close else ""))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; its errors name commands as they must be given here, and a closed pipe ends it quietly."""
        try:
            return super().invoke(ctx)
        except BatchctlError as error:
            state = state_given(ctx)
            error.message = commands_for(error.message, state)
            error.hint = error.hint and commands_for(error.hint, state)
            raise
        except click.NoSuchOption as error:
            if error.option_name in {name for param in self.params for name in param.opts}:
                name = error.option_name
                raise click.UsageError(
                    f"{name} stands before the command: batchctl {name} … COMMAND", error.ctx
                ) from None
            raise
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the last flush has nowhere to fail
            sys.exit(0)

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
@option("--state", type=FilePath(), default=DEFAULT_STATE, show_default=True, help="The state file.")
@option("--log-file", type=FilePath(), help="Append events here.")
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
    # a link to a state file would have a folder and locks of its own, and what is sent would be sent twice
    state = Path(os.path.realpath(options["state"])) if options["state"].is_symlink() else options["state"]
    ctx.obj = options | {"state": state, "state_given": state_given(ctx)}


def state_given(ctx: click.Context) -> Path | None:
    """The state file where it is not the default one, for the commands that messages name."""
    state = ctx.params.get("state")
    return None if state in (None, DEFAULT_STATE) else Path(str(state))


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
