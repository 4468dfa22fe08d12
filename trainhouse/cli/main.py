"""`trainhouse`: the command line of everything. This file only gathers the commands.

Holds: a command's module is imported when that command is run, and for nothing else; an expected error is one sentence on standard error
and a code of `exit_codes.Exit`.
"""

import importlib
import os
import sys
import textwrap
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Final

import typer.main
from typer.core import TyperGroup

from trainhouse.cli.command_index import COMMANDS, SECTIONS
from trainhouse.cli.shared.exit_codes import MEANINGS, Exit, explain
from trainhouse.cli.shared.plain_params import read_plainly

COMPLETION_VARIABLE: Final = "_TRAINHOUSE_COMPLETE"
EPILOG = "\b\nExit codes:\n" + "\n".join(
    textwrap.fill(f"  {code.value:>3}  {text}", 76, subsequent_indent=" " * 7) for code, text in MEANINGS.items()
)
HELP = """
Run training jobs on a fleet, where every fact is an event.

\b
The first minutes:
  trainhouse up --detach                        a whole stack on this machine
  trainhouse submit --wait -- python train.py   a job, followed to its end
  trainhouse status                             what there is
  trainhouse events JOB                         all events of one
  trainhouse sql "SELECT * FROM jobs"           any question

`trainhouse COMMAND --help` shows examples of each.
"""


class SectionedGroup(TyperGroup):
    """The root command; its help lists commands by section."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes one list for each section of the index."""
        width = formatter.width - 6 - max(map(len, COMMANDS))
        for section, listed in SECTIONS.items():
            known = [(name, self.commands[name].get_short_help_str(width)) for name in listed if name in self.commands]
            if known:
                with formatter.section(section):
                    formatter.write_dl(known)


def build(*names: str) -> typer.Typer:
    """The command line with all of its commands; with `names`, with what their modules hold alone."""
    app = _root()
    modules = dict.fromkeys(module for name in names or COMMANDS for module in COMMANDS[name].modules)
    for module in modules:
        importlib.import_module(f"trainhouse.cli.{module}").register(app)
    return app


def build_listing() -> typer.Typer:
    """The command line with names and one-line helps alone; imports no command."""
    app = _root()
    for name, command in COMMANDS.items():
        app.command(name, help=command.help)(_not_imported)
    return app


def _root() -> typer.Typer:
    app = typer.Typer(
        name="trainhouse",
        cls=SectionedGroup,
        help=HELP,
        epilog=EPILOG,
        # Plain help: it is there in a fifth of a second, rich takes twice as long.
        rich_markup_mode=None,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_run_root)
    return app


def _run_root() -> None:
    """Makes the root a group, also where it has one command alone."""


def _not_imported() -> None:
    """Stands for a command in a listing; `main` never runs a listed one."""
    raise AssertionError("a listed command was run")


def app_for(arguments: Sequence[str], environment: Mapping[str, str]) -> typer.Typer:
    """The command line as far as these arguments need it; whole where a shell asks for completion."""
    if COMPLETION_VARIABLE in environment:
        return build()
    return build(arguments[0]) if arguments and arguments[0] in COMMANDS else build_listing()


def main() -> None:
    """Runs one command and exits."""
    try:
        command = typer.main.get_command(app_for(sys.argv[1:], os.environ))
        read_plainly(command)
        command()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(Exit.INTERRUPTED)
    except BrokenPipeError:
        # `trainhouse … | head`: the reader has all that it wanted.
        sys.stderr.close()
        sys.exit(Exit.OK)
    except Exception as error:
        known = explain(error)
        if known is None:
            traceback.print_exc()
            sys.stderr.write("this is a bug of Trainhouse; the lines above tell where\n")
            sys.exit(Exit.INTERNAL)
        sys.stderr.write(f"trainhouse: {known}\n")
        sys.exit(known.code)


if __name__ == "__main__":
    main()
