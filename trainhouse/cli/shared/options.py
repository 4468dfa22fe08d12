"""Options that many commands share, so that they look and mean the same everywhere."""

from pathlib import Path
from typing import Annotated, Final, Optional

import typer

from trainhouse.cli.shared import complete


def _use(given: Path | None) -> Path | None:
    from trainhouse.cli.shared import settings_lookup

    settings_lookup.use(given)
    return given


def _use_kafka(context: typer.Context, given: Path | None) -> Path | None:
    from trainhouse.cli.shared import settings_lookup

    settings_lookup.use(given)
    settings_lookup.need_kafka(context.command_path)
    return given


_HELP: Final = "Folder of the stack; default: TRAINHOUSE_DATA_DIR, or the nearest .trainhouse upward."
DataDir = Annotated[
    Optional[Path],  # noqa: UP045 - typer reads it at run time
    typer.Option(
        "--data-dir",
        help=_HELP,
        callback=_use,
        rich_help_panel="Where",
    ),
]
# Of commands for which no stack need ever have started there: `up` is what starts one, `doctor` says so.
StackDir = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--data-dir", help=_HELP, rich_help_panel="Where"),
]
# Of commands that need Kafka or the object store themselves: they say so where only a gateway is known.
KafkaDir = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--data-dir",
        help=_HELP,
        callback=_use_kafka,
        rich_help_panel="Where",
    ),
]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Job id.", show_default=False, autocompletion=complete.jobs)]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs: one object a line.")]
Timeout = Annotated[float, typer.Option("--timeout", min=1, help="Seconds to wait for the scheduler's answer.")]
Wait = Annotated[
    Optional[bool],  # noqa: UP045
    typer.Option(
        "--wait/--no-wait",
        "-w",
        help="Follow the job to its end, exit with its code; or not even wait until it is admitted.",
        show_default="until it is admitted",
    ),
]
FollowedRank = Annotated[int, typer.Option("--rank", min=0, help="With --wait: the rank whose output is shown.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="With --wait: states alone, no output.")]
FILTERS = "Filters"
User = Annotated[Optional[str], typer.Option("--user", help="Only of this user.", rich_help_panel=FILTERS)]  # noqa: UP045
Team = Annotated[Optional[str], typer.Option("--team", help="Only of this team.", rich_help_panel=FILTERS)]  # noqa: UP045
Project = Annotated[Optional[str], typer.Option("--project", help="Only of this project.", rich_help_panel=FILTERS)]  # noqa: UP045
Pool = Annotated[Optional[str], typer.Option("--pool", help="Only of this pool.", rich_help_panel=FILTERS, autocompletion=complete.pools)]  # noqa: UP045
State = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--state", help="Only in this state; may be repeated.", rich_help_panel=FILTERS),
]
Tag = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--tag", metavar="KEY[=VALUE]", help="Only with this tag; may be repeated, all count.", rich_help_panel=FILTERS),
]
Since = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--since", help="Only from then on: 90s, 15m, 2h, 3d, or 2026-05-01T12:00.", rich_help_panel=FILTERS),
]
Until = Annotated[Optional[str], typer.Option("--until", help="Only before then.", rich_help_panel=FILTERS)]  # noqa: UP045
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many rows.", rich_help_panel=FILTERS)]
