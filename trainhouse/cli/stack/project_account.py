"""`trainhouse project account …`: an account on the brokers with which a project's people reach its two topics and nothing else.

Holds: standard output has the exports alone. In a local stack a repeat prints the same password; on a cluster of one's own nobody keeps it.
Never: a password in a message.
"""

import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import KafkaDir
from trainhouse.cli.stack.project_topics import group_of_projects

if TYPE_CHECKING:
    from trainhouse.events.settings import KafkaSettings

ProjectArgument = Annotated[str, typer.Argument(metavar="PROJECT", help="Name of the project.", show_default=False)]
PASSWORD_BYTES = 30


def register(app: typer.Typer) -> None:
    """Adds `account` to the group of projects."""
    account = typer.Typer(no_args_is_help=True, help="Create and remove a project's own account on the brokers.")
    for name, command in (("create", create), ("remove", remove), ("acls", acls)):
        account.command(name)(command)
    group_of_projects(app).add_typer(account, name="account")


def create(
    project: ProjectArgument,
    new_password: Annotated[bool, typer.Option("--new-password", help="In the place of the one before.")] = False,
    data_dir: KafkaDir = None,
) -> None:
    """Create a project's topics, account and grants, and print what its people export. The account writes trainhouse.jobs.PROJECT, reads
    trainhouse.status.PROJECT, joins groups that begin with `project-PROJECT.`, and may do nothing else.

    \b
    trainhouse project account create vision > vision.env
    trainhouse project account create vision --new-password
        # the one before counts no more for new connections
    """
    from trainhouse.cli.shared import output
    from trainhouse.deploy.local import client_config
    from trainhouse.deploy.local.credentials import project_accounts
    from trainhouse.events.security.grants import needs_of_project
    from trainhouse.events.settings import KafkaSettings

    _known_name(project)
    folder = _local_folder(data_dir)
    if folder is not None:
        found = project_accounts.create(folder, project, new_password=new_password)
    else:
        found = _on_a_cluster(KafkaSettings(), project, new_password)
    needs = needs_of_project(project)
    output.remark(f"writes {needs.writes[0]}, reads {needs.reads[0]}, consumer groups begin with {needs.groups[0].removesuffix('*')}")
    names = ("bootstrap", "security_protocol", "sasl_mechanism", "sasl_username", "sasl_password")
    sys.stdout.write(client_config.as_shell({f"TRAINHOUSE_KAFKA_{name.upper()}": str(getattr(found, name)) for name in names}))


def remove(project: ProjectArgument, data_dir: KafkaDir = None) -> None:
    """Take a project's account and grants away, also from connections that are open; its topics and jobs stay.

    \b
    trainhouse project account remove vision
    """
    from trainhouse.deploy.local.credentials import project_accounts
    from trainhouse.events.bus.accounts import remove_project
    from trainhouse.events.settings import KafkaSettings

    _known_name(project)
    folder = _local_folder(data_dir)
    found = remove_project(KafkaSettings(), project) if folder is None else project_accounts.remove(folder, project)
    sys.stdout.write(f"project {project} {'has no account any more' if found else 'had no account'}\n")


def acls(
    project: ProjectArgument,
    principal: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="As your brokers name the project's people; default: User:project-PROJECT."),
    ] = None,
    bootstrap: Annotated[str, typer.Option(help="Of your brokers.")] = "$TRAINHOUSE_KAFKA_BOOTSTRAP",
) -> None:
    """Print the grants of a project's account as commands of Kafka's own tools, for brokers whose accounts are made elsewhere.

    \b
    trainhouse project account acls vision --principal "User:CN=vision,O=Example"
    """
    import shlex

    from trainhouse.events.security.grants import project_grants

    _known_name(project)
    options = {"TOPIC": "--topic", "GROUP": "--group"}
    for grant in project_grants(project):
        pattern = "prefixed" if grant.prefixed else "literal"
        words = ("--allow-principal", principal or f"User:{grant.principal}", "--operation", grant.operation.capitalize())
        where = (options[grant.kind], grant.name, "--resource-pattern-type", pattern)
        sys.stdout.write(f'kafka-acls.sh --bootstrap-server "{bootstrap}" --add {shlex.join((*words, *where))}\n')


def _on_a_cluster(operator: "KafkaSettings", project: str, new_password: bool) -> "KafkaSettings":
    from trainhouse.events.bus.accounts import MECHANISM, has_account, secure_project
    from trainhouse.events.bus.admin import create_project_topics
    from trainhouse.events.security.grants import project_account

    name = project_account(project)
    if not new_password and has_account(operator, name):
        raise CliError(
            f"project {project} has an account already, and its password was printed when it was made: "
            f"`trainhouse project account create {project} --new-password` gives it another",
            Exit.REJECTED,
        )
    create_project_topics(operator, project)
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    secure_project(operator, project, password)
    return operator.model_copy(update={"sasl_mechanism": MECHANISM, "sasl_username": name, "sasl_password": password})


def _local_folder(given: Path | None) -> Path | None:
    """The folder of the stack whose brokers are asked; None where they are a cluster's."""
    from trainhouse.cli.shared import settings_lookup
    from trainhouse.deploy.local.layout import StackFolder, read_toml
    from trainhouse.events.settings import KafkaSettings

    folder = StackFolder(settings_lookup.find_data_dir(given, os.environ, Path.cwd()))
    if not folder.choices_file.exists() or not folder.client_config.exists():
        return None
    here = read_toml(folder.client_config).get("kafka", {}).get("bootstrap")
    return folder.root if here == KafkaSettings().bootstrap else None


def _known_name(project: str) -> None:
    from trainhouse.events.wire.project_topics import topics_of

    try:
        topics_of(project)
    except ValueError as error:
        raise CliError(str(error), Exit.USAGE) from error
