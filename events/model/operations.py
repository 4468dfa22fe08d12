"""Requests to one node's agent from a person, and the replies.

Holds: a request is answered at most once per rank; a reply's last part has `done`.
"""

from typing import Final

from pydantic import Field

from trainhouse.events.model.asked import RequestedBy
from trainhouse.events.model.base import Event
from trainhouse.events.model.bounds import MOST_ITEMS, Count, InputText, Int32, ShortText, SmallCount, TimestampMs
from trainhouse.events.model.ids import AttemptNumber, JobId, NodeId

MAX_PROFILED_RANKS: Final = 64
MAX_PROFILED_STEPS: Final = 500


class Operation(Event):
    """Common fields of operation requests. A request is void after `expires_at_ms`."""

    request_id: str = Field(min_length=1, max_length=128, description="id of the request")
    node_id: NodeId
    job_id: JobId
    expires_at_ms: TimestampMs = Field(description="time after which it is void, in milliseconds since 1970")
    requested_by: RequestedBy | None = None
    host: str = Field("", max_length=64, description="from where, as who asks says")


class DumpStacks(Operation, type="trainhouse.operation.dump-stacks.v1"):
    """Asks for the Python stack of every rank of the job on the node."""


class ExecuteCommand(Operation, type="trainhouse.operation.execute-command.v1"):
    """Asks to run a command beside one rank: its folder, environment and user."""

    rank: SmallCount
    command: tuple[InputText, ...] = Field(min_length=1, max_length=MOST_ITEMS, description="program and arguments")
    timeout_s: float = Field(60.0, gt=0, le=3600, description="seconds that it may run")


class ProfileRanks(Operation, type="trainhouse.operation.profile-ranks.v1"):
    """Asks ranks of the job on the node for a profiler's trace of their next steps."""

    ranks: tuple[SmallCount, ...] = Field(min_length=1, max_length=MAX_PROFILED_RANKS, description="ranks to profile, all on the node")
    steps: int = Field(20, ge=1, le=MAX_PROFILED_STEPS, description="steps to record")
    timeout_s: float = Field(300.0, gt=0, le=3600, description="seconds after which recording ends, with the steps recorded by then")


class OpenTunnel(Operation, type="trainhouse.operation.open-tunnel.v1"):
    """Asks to connect the interactive job on the node with one of its users: the agent calls the gateway back, by `url`."""

    url: str = Field(pattern=r"^https?://[^\s@]+$", max_length=1024, description="address of the gateway process that holds the tunnel")
    nonce: str = Field(min_length=16, max_length=128, description="random text that the agent signs, with the request's id, when it calls")


OperationRequest = DumpStacks | ExecuteCommand | OpenTunnel | ProfileRanks


class OperationReplied(Event, type="trainhouse.operation.replied.v1"):
    """A part of the answer for one rank."""

    request_id: ShortText = Field(description="id of the request")
    node_id: NodeId
    job_id: JobId
    attempt: AttemptNumber | None
    rank: Int32 = Field(description="rank that the answer is of; negative: the node as a whole")
    part: Count = Field(description="number of the part, from 0")
    text: InputText = Field(description="output")
    exit_code: Int32 | None = Field(None, description="exit code of the command, in its last part")
    done: bool = Field(False, description="whether it is the last part of this rank")
