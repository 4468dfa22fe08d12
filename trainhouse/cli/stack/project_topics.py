"""`project topics create`: the two topics by which a project's people work with Kafka alone.

Holds: repeating it is harmless; when it returns, whatever becomes of the project's jobs is told on its own topic too.
"""

import sys
from typing import Annotated

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import Json, KafkaDir

GROUP = "project"


def register(app: typer.Typer) -> None:
    """Adds `topics` to the group of projects."""
    topics = typer.Typer(no_args_is_help=True, help="Create a project's own Kafka topics.")
    topics.command("create")(create)
    group_of_projects(app).add_typer(topics, name="topics")


def group_of_projects(app: typer.Typer) -> typer.Typer:
    """The group of commands about projects, made where there is none."""
    group = next((g.typer_instance for g in app.registered_groups if g.name == GROUP), None)
    if group is None:
        group = typer.Typer(no_args_is_help=True, help="Projects.")
        app.add_typer(group, name=GROUP)
    return group


def create(
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="Name of the project.", show_default=False)],
    json: Json = False,
    data_dir: KafkaDir = None,
) -> None:
    """Create a project's topics: trainhouse.jobs.PROJECT, which its people write, and trainhouse.status.PROJECT, which they read.

    \b
    trainhouse project topics create vision
    """
    from confluent_kafka import KafkaException

    from trainhouse.cli.shared import output
    from trainhouse.events.bus.admin import create_project_topics
    from trainhouse.events.model.errors import BusUnavailableError
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.events.wire.project_topics import jobs_topic, status_topic

    try:
        made = create_project_topics(KafkaSettings(), project)
    except ValueError as error:
        raise CliError(str(error), Exit.USAGE) from error
    except (BusUnavailableError, KafkaException) as error:
        raise CliError(f"the topics of project {project} were not made: {error}", Exit.UNAVAILABLE) from error
    rows = [{"topic": name, "created": name in made} for name in (jobs_topic(project), status_topic(project))]
    if json:
        output.json_lines(rows)
        return
    for row in rows:
        sys.stdout.write(f"{row['topic']} {'was made' if row['created'] else 'was there already'}\n")
