"""Options that the commands of models share, and their group."""

from typing import Annotated, Final

import typer

GROUP: Final = "models"
Project = Annotated[str, typer.Option(help="Project that the model belongs to.")]


def models_group(app: typer.Typer) -> typer.Typer:
    """The group of models, which is made where there is none yet."""
    group = next((each.typer_instance for each in app.registered_groups if each.name == GROUP), None)
    if group is None:
        group = typer.Typer(no_args_is_help=True, help="Versions of models.")
        app.add_typer(group, name=GROUP)
    return group
