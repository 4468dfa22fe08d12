"""`trainhouse`: the command line of everything. This file only gathers the commands.

Holds: an expected error is one sentence on standard error and a code of `exit_codes.Exit`.
"""

import sys
import traceback
from collections.abc import Iterable
from types import ModuleType

import typer

from trainhouse.cli.shared.exit_codes import MEANINGS, Exit, explain

EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code.value:>3}  {meaning}" for code, meaning in MEANINGS.items())
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


def build() -> typer.Typer:
    """The command line with all of its commands."""
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
    for module in _commands():
        module.register(app)
    _register_preparation(app)
    _register_stack(app)
    return app


def _commands() -> Iterable[ModuleType]:
    """Modules of commands, in the order of the help."""
    return (*_of_users(), *_of_operators())


def _of_users() -> Iterable[ModuleType]:
    from trainhouse.cli.artifacts import artifact_commands
    from trainhouse.cli.data import alerts, dataset_commands, objectives, report, sql_query
    from trainhouse.cli.fleet import node_commands, node_list, policies, pools
    from trainhouse.cli.jobs import changes, checkpoint_commands, job_events, job_status, logs, rank_inspection, submit, why
    from trainhouse.cli.stack import open, project_access
    from trainhouse.cli.top import command as top

    return (
        submit,
        job_status,
        checkpoint_commands,
        top,
        why,
        changes,
        job_events,
        logs,
        rank_inspection,
        open,
        node_list,
        alerts,
        node_commands,
        pools,
        policies,
        project_access,
        dataset_commands,
        artifact_commands,
        sql_query,
        report,
        objectives,
    )


def _of_operators() -> Iterable[ModuleType]:
    from trainhouse.cli.data import archive, audit_trail, expire, journal_repair, replay, store_sweep, table_copies
    from trainhouse.cli.fleet import emulated_fleet, simulate, what_if
    from trainhouse.cli.jobs import import_runs
    from trainhouse.cli.stack import partitions, project_account, project_topics, run, secret, token, upgrade

    return (
        replay,
        journal_repair,
        upgrade,
        table_copies,
        archive,
        expire,
        audit_trail,
        store_sweep,
        secret,
        token,
        partitions,
        import_runs,
        run,
        emulated_fleet,
        simulate,
        what_if,
        project_topics,  # after whatever else adds to the group of projects
        project_account,
    )


def _register_preparation(app: typer.Typer) -> None:
    """Adds to the group of datasets the command that submits a job."""
    from trainhouse.cli.jobs import prepare_command

    prepare_command.register(app)


def _register_stack(app: typer.Typer) -> None:
    from trainhouse.cli.stack import credentials, demo, local_stack

    local_stack.register(app)
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
