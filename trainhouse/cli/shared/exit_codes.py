"""Exit codes of every command, and the one place where an expected error becomes a sentence.

Holds: an expected error never shows a traceback; an unexpected one always does (it is a bug), with code 70.
"""

from enum import IntEnum


class Exit(IntEnum):
    """Exit statuses of commands. `trainhouse submit --wait` and `status --watch` end with the job's own."""

    OK = 0
    FAILED = 1
    USAGE = 2
    REJECTED = 3
    CANCELLED = 4
    NEEDS_REVIEW = 5
    DATA = 65
    NOT_FOUND = 66
    UNAVAILABLE = 69
    INTERNAL = 70
    TIMEOUT = 75
    CONFIG = 78
    INTERRUPTED = 130


MEANINGS = {
    Exit.OK: "done; with --wait: the job SUCCEEDED",
    Exit.FAILED: "the job FAILED; a verification or a comparison found a difference",
    Exit.USAGE: "wrong arguments, a wrong spec or policy; nothing was sent",
    Exit.REJECTED: "the job was REJECTED; the change was refused",
    Exit.CANCELLED: "the job was CANCELLED",
    Exit.NEEDS_REVIEW: "the job is NEEDS_REVIEW: a person must judge it (`trainhouse review`)",
    Exit.DATA: "ClickHouse refused the query",
    Exit.NOT_FOUND: "no such job, rank, pool, node, moment or file",
    Exit.UNAVAILABLE: "Kafka, the object store, ClickHouse, the scheduler or an agent does not answer",
    Exit.INTERNAL: "a bug: the traceback tells where",
    Exit.TIMEOUT: "the time given by --timeout is over; the job goes on",
    Exit.CONFIG: "settings are missing or wrong",
    Exit.INTERRUPTED: "Ctrl-C; the job goes on",
}


class CliError(Exception):
    """An expected error: one sentence for a person, and the code to exit with."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.code = code


def exit_of_state(state: str) -> Exit:
    """The exit code of a final state."""
    return Exit.OK if state == "SUCCEEDED" else Exit[state] if state in Exit.__members__ else Exit.FAILED


def explain(error: BaseException) -> CliError | None:
    """The sentence, in which no URL has an account, and code of an expected error; None for a bug."""
    from trainhouse.url_accounts import without_account

    known = _known(error)
    return None if known is None else CliError(without_account(str(known)), known.code)


def _known(error: BaseException) -> CliError | None:
    if isinstance(error, CliError):
        return error
    from trainhouse.client import errors as client

    codes: tuple[tuple[type[BaseException], Exit], ...] = (
        (client.NotReachableError, Exit.UNAVAILABLE),
        (client.NoReplyError, Exit.UNAVAILABLE),
        (client.QueryError, Exit.DATA),
        (client.NeedsKafkaError, Exit.CONFIG),
        (client.InvalidSettingsError, Exit.CONFIG),
        (client.AccessDeniedError, Exit.CONFIG),
        (client.JournalBrokenError, Exit.FAILED),
        (client.UnknownJobError, Exit.NOT_FOUND),
        (client.UnknownStudyError, Exit.NOT_FOUND),
        (client.ChangeRefusedError, Exit.REJECTED),
        (client.ClientError, Exit.USAGE),
    )
    return _first(codes, error) or _known_of_packages(error)


def _known_of_packages(error: BaseException) -> CliError | None:
    # Only now: the classes come with packages that a quick command never loads.
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from trainhouse.checkpointing.errors import CheckpointError, ObjectStoreUnavailableError
    from trainhouse.deploy.local.errors import StackError
    from trainhouse.events.archive.errors import ArchiveError
    from trainhouse.events.model.errors import BusUnavailableError, EventError

    if isinstance(error, ValidationError | SettingsError):
        return CliError(
            f"settings are wrong: {_first_problem(error)}; see TRAINHOUSE_* in the environment and the settings file", Exit.CONFIG
        )
    codes: tuple[tuple[type[BaseException], Exit], ...] = (
        (BusUnavailableError, Exit.UNAVAILABLE),
        (ObjectStoreUnavailableError, Exit.UNAVAILABLE),
        (CheckpointError, Exit.CONFIG),
        (StackError, Exit.UNAVAILABLE),
        (ArchiveError, Exit.FAILED),
        (EventError, Exit.USAGE),
        (TimeoutError, Exit.TIMEOUT),
    )
    return _first(codes, error)


def _first(codes: tuple[tuple[type[BaseException], Exit], ...], error: BaseException) -> CliError | None:
    return next((CliError(str(error), code) for kind, code in codes if isinstance(error, kind)), None)


def _first_problem(error: Exception) -> str:
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{error.title}.{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)
