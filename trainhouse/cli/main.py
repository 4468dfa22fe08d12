"""`trainhouse`: the command line of everything. This file only gathers the commands.

Holds: an expected error is one sentence on standard error and a code of `exits.Exit`.
"""

import sys
import traceback

import typer

from trainhouse.cli.exits import MEANINGS, Exit, explain

EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code.value:>3}  {meaning}" for code, meaning in MEANINGS.items())
HELP = """
Runs training jobs on a fleet, where every fact is an event.

\b
The first minutes:
  trainhouse up --detach                        a whole stack on this machine
  trainhouse submit --wait -- python train.py   a job, followed to its end
  trainhouse status                             what there is
  trainhouse events JOB                         the whole story of one
  trainhouse sql "SELECT * FROM jobs"           any question

`trainhouse COMMAND --help` shows examples of each.
"""


def build() -> typer.Typer:
    """The command line with all of its commands."""
    from trainhouse.cli import (
        alerts,
        archive,
        audit,
        changes,
        data,
        expire,
        fleet,
        import_runs,
        jobs,
        journal,
        logs,
        nodes,
        open,
        operations,
        policies,
        pools,
        project,
        project_account,
        project_topics,
        projections,
        replay,
        report,
        restrictions,
        run,
        secret,
        simulate,
        slo,
        store,
        story,
        submit,
        token,
        topics,
        upgrade,
        what_if,
        why,
    )
    from trainhouse.cli.top import command as top

    app = typer.Typer(
        name="trainhouse",
        help=HELP,
        epilog=EPILOG,
        # Plain help: it is there in a fifth of a second, rich takes twice as long.
        rich_markup_mode=None,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for module in (
        submit,
        jobs,
        top,
        why,
        changes,
        story,
        logs,
        operations,
        open,
        nodes,
        alerts,
        restrictions,
        pools,
        policies,
        project,
        data,
        report,
        slo,
        replay,
        journal,
        upgrade,
        projections,
        archive,
        expire,
        audit,
        store,
        secret,
        token,
        topics,
        import_runs,
        run,
        fleet,
        simulate,
        what_if,
        project_topics,  # after whatever else adds to the group of projects
        project_account,
    ):
        module.register(app)
    _register_stack(app)
    return app


def _register_stack(app: typer.Typer) -> None:
    from trainhouse.cli import credentials, demo, stack

    stack.register(app)
    credentials.register(app)
    demo.register(app)


def main() -> None:
    """Runs one command and exits."""
    try:
        build()()
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
