"""Requests to one node's agent from a person, and the replies.

Holds: a request is answered at most once per rank; a reply's last part has `done`.
"""

from pydantic import Field

from trainhouse.events.model.asked import RequestedBy
from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import MOST_ITEMS, Count, InputText, Int32, ShortText, SmallCount, TimestampMs
from trainhouse.events.model.ids import AttemptNumber, JobId, NodeId


class Operation(Event):
    """Common fields of operation requests. A request is void after `expires_at_ms`."""

    request_id: str = Field(min_length=1, max_length=128)
    node_id: NodeId
    job_id: JobId
    expires_at_ms: TimestampMs
    requested_by: RequestedBy | None = None
    host: str = Field("", max_length=64, description="from where, as who asks says")


class DumpStacks(Operation, type="trainhouse.operation.dump-stacks.v1"):
    """Asks for the Python stack of every rank of the job on the node."""


class ExecuteCommand(Operation, type="trainhouse.operation.execute-command.v1"):
    """Asks to run a command beside one rank: its folder, environment and user."""

    rank: SmallCount
    command: tuple[InputText, ...] = Field(min_length=1, max_length=MOST_ITEMS)
    timeout_s: float = Field(60.0, gt=0, le=3600)


class OperationReplied(Event, type="trainhouse.operation.replied.v1"):
    """A part of the answer for one rank."""

    request_id: ShortText
    node_id: NodeId
    job_id: JobId
    attempt: AttemptNumber | None
    rank: Int32
    part: Count
    text: InputText
    exit_code: Int32 | None = None
    done: bool = False
