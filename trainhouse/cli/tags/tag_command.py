"""`tag`: tags and the note of a job, which are those that MLflow's client sets and reads."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Optional

import typer

from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, JobArgument, Json

if TYPE_CHECKING:
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.quick.quick_reads import QuickReads

NOTE: Final = "mlflow.note.content"
MAX_KEY_CHARS: Final = 250
MAX_VALUE_CHARS: Final = 8000
MAX_CHANGES: Final = 100


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("tag")(tag)


def tag(
    job: JobArgument,
    tags: Annotated[Optional[list[str]], typer.Argument(metavar="[KEY=VALUE]...", help="Tags to set.", show_default=False)] = None,  # noqa: UP045
    remove: Annotated[Optional[list[str]], typer.Option("--remove", metavar="KEY", help="A tag to remove; may be repeated.")] = None,  # noqa: UP045
    note: Annotated[Optional[str], typer.Option("--note", help="The job's note; an empty one removes it.")] = None,  # noqa: UP045
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Set, remove and list tags of a job, and its note: those that MLflow's client has, too. A job that has ended can be tagged as well.

    \b
    trainhouse tag gpt-1k7x3m9qp2f8d                      list them
    trainhouse tag gpt-1k7x3m9qp2f8d paper=icml baseline= set two
    trainhouse tag gpt-1k7x3m9qp2f8d --remove baseline --note "the run of table 2"
    trainhouse status --tag paper=icml                    jobs that have one
    """
    wanted, gone = changes(tags or (), remove or (), note)
    if not wanted and not gone:
        _show(job, _tags(job), json)
        return
    from trainhouse.cli.jobs.job_status import known_ids, unknown
    from trainhouse.client import TrainhouseClient, UnknownJobError

    client = TrainhouseClient.from_settings()
    try:
        client.change_tags(job, wanted, gone)
    except UnknownJobError:
        raise unknown(job, known_ids(client)) from None
    sys.stderr.write(f"{job}: {done_text(wanted, gone)}\n")


def _tags(job: str) -> dict[str, str]:
    """All tags of a job or of a tracked run. Blocks. Raises CliError for an unknown one."""
    from trainhouse.cli.jobs.job_status import known_ids, unknown
    from trainhouse.client.errors import UnknownJobError
    from trainhouse.client.quick.quick_reads import asked

    def by_client(client: "TrainhouseClient") -> dict[str, str]:
        try:
            return client.tags(job)
        except UnknownJobError:
            raise unknown(job, known_ids(client)) from None

    return asked(lambda reads: reads.known_tags(job), by_client)


def changes(tags: Sequence[str], remove: Sequence[str], note: str | None) -> tuple[dict[str, str], list[str]]:
    """Tags to set and keys to remove, of what was typed. Pure. Raises CliError."""
    wanted: dict[str, str] = {}
    for text in tags:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise CliError(f"{text!r} is no tag: write KEY=VALUE, or KEY= for one without a value", Exit.USAGE)
        if key.strip() in wanted:
            raise CliError(f"the tag {key.strip()} is named twice; keep one of them", Exit.USAGE)
        wanted[key.strip()] = value
    gone = list(dict.fromkeys(remove))
    if note is not None:
        wanted |= {NOTE: note} if note.strip() else {}
        gone += [] if note.strip() else [NOTE]
    for key in [*wanted, *gone]:
        if not key or len(key) > MAX_KEY_CHARS or any(char < " " for char in key):
            raise CliError(f"the name of a tag has 1 to {MAX_KEY_CHARS} characters, and none of control: {key[:40]!r}", Exit.USAGE)
    for key, value in wanted.items():
        if len(value) > MAX_VALUE_CHARS:
            raise CliError(f"the tag {key} has {len(value)} characters; {MAX_VALUE_CHARS} are the most", Exit.USAGE)
    if both := sorted(wanted.keys() & set(gone)):
        raise CliError(f"the tag {both[0]} is to be set and removed; keep one of them", Exit.USAGE)
    if max(len(wanted), len(gone)) > MAX_CHANGES:
        raise CliError(f"{MAX_CHANGES} tags at a time are the most", Exit.USAGE)
    return wanted, gone


def done_text(wanted: Mapping[str, str], gone: Sequence[str]) -> str:
    """The change in words. Pure."""
    named = [("note", key) if key == NOTE else ("tag", key) for key in wanted]
    parts = [f"set {kind}" if kind == "note" else f"set tag {key}" for kind, key in named]
    return ", ".join(parts + ["removed note" if key == NOTE else f"removed tag {key}" for key in gone])


def tags_of_job(client: "QuickReads | TrainhouseClient", job: str) -> dict[str, str] | None:
    """Asks for a job's tags, without those that MLflow's client sets by itself; None where the tables do not answer. Blocks."""
    from trainhouse.client.errors import ClientError

    try:
        return {key: value for key, value in client.tags(job).items() if key == NOTE or not key.startswith("mlflow.")}
    except ClientError:
        return None


def tag_lines(tags: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """Tags and note as (name, text) for `status`. Pure."""
    from trainhouse.cli.shared.output import one_line

    known = tags or {}
    words = [f"{key}={value}" if value else key for key, value in known.items() if key != NOTE]
    return [("tags", ", ".join(words))] * bool(words) + [("note", one_line(known.get(NOTE, "")))] * bool(known.get(NOTE))


def _show(job: str, tags: Mapping[str, str], json: bool) -> None:
    from trainhouse.cli.shared import output

    if json:
        output.json_lines({"key": key, "value": value} for key, value in tags.items())
    elif tags:
        output.table(("key", "value"), tags.items())
    else:
        output.remark(f"{job} has no tags; set one with `trainhouse tag {job} KEY=VALUE`")
