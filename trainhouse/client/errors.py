"""Errors of the client: each is a ClientError.

Holds: a message names the thing, the cause and the way out, and needs no traceback to be understood.
"""


class ClientError(Exception):
    """Base of all errors of the client."""


class NotReachableError(ClientError):
    """The brokers, the object store or the SQL endpoint did not answer; retryable."""


class InvalidSpecError(ClientError):
    """The spec cannot be a job; the message says which field and what to change."""


class UnknownJobError(ClientError):
    """No job of this id has ever been seen, or none that this user may see."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"there is no job {job_id!r}; `trainhouse status` lists them")
        self.job_id = job_id


class UnknownStudyError(ClientError):
    """There is no such study, or none that this user may see."""

    def __init__(self, project: str, name: str) -> None:
        super().__init__(f"project {project} has no study {name}; `trainhouse study list` shows what there is")


class CodeTooLargeError(ClientError):
    """The working folder is larger than what may be packed."""


class CodeUnreadableError(ClientError):
    """The working folder, or something in it, cannot be packed."""


class QueryError(ClientError):
    """ClickHouse refused the query; the message is its own."""


class NoReplyError(ClientError):
    """A node's agent did not answer an operation in time; retryable."""


class ChangeRefusedError(ClientError):
    """Intake or the scheduler refused a change of a pool, a policy, a node or a job; all is as it was."""


class JobEndedError(ChangeRefusedError):
    """A job that has ended, and so cannot change. `state`: its final state, where that is known."""

    def __init__(self, job_id: str, state: str = "") -> None:
        how = f" ({state})" if state else ""
        super().__init__(f"{job_id} has ended{how}, and nothing of it can change; `trainhouse rerun {job_id}` submits it again")


class JournalBrokenError(ClientError):
    """The scheduler's journal does not fold: a record of it was altered or lost."""


class NeedsKafkaError(ClientError):
    """The request cannot go by the gateway; the message names the way out."""


class AccessDeniedError(ClientError):
    """The gateway refused: no token, one that is over, or a role that may not do this."""


class InvalidSettingsError(ClientError):
    """Addresses are missing or contradict each other."""
