"""The agent's decisions as a pure machine: state, now and one input give the next state and what to do.

Holds: nothing here reads a clock, a file or a socket, so that thousands of agents run in one process (the fleet emulator) and every
decision can be tried in a test.  Never: does anything; it says what is to be done.
"""

from trainhouse.workers.agent.core.actions import (
    Action,
    AskCheckpoint,
    Drain,
    Finish,
    KillTree,
    Launch,
    Probe,
    Register,
    Report,
    Seal,
    Sweep,
    TakeStacks,
    Terminate,
    UploadOwnStates,
)
from trainhouse.workers.agent.core.agent_state import AgentState, AttemptKey, Identity, LocalAttempt, Phase
from trainhouse.workers.agent.core.departure import next_due_ms, notice_reports
from trainhouse.workers.agent.core.inputs import (
    AgentInput,
    AttemptAdopted,
    Command,
    Drained,
    LaunchDone,
    LaunchRefused,
    Noticed,
    NoticeWithdrawn,
    RankGone,
    Sealed,
    SessionSeen,
    ShutdownAsked,
    StacksTaken,
    StopAcked,
    Swept,
    Tick,
)
from trainhouse.workers.agent.core.machine import step

__all__ = [
    "Action",
    "AgentInput",
    "AgentState",
    "AskCheckpoint",
    "AttemptAdopted",
    "AttemptKey",
    "Command",
    "Drain",
    "Drained",
    "Finish",
    "Identity",
    "KillTree",
    "Launch",
    "LaunchDone",
    "LaunchRefused",
    "LocalAttempt",
    "Noticed",
    "NoticeWithdrawn",
    "Phase",
    "Probe",
    "RankGone",
    "Register",
    "Report",
    "Seal",
    "Sealed",
    "SessionSeen",
    "ShutdownAsked",
    "StacksTaken",
    "StopAcked",
    "Sweep",
    "Swept",
    "TakeStacks",
    "UploadOwnStates",
    "Terminate",
    "Tick",
    "next_due_ms",
    "notice_reports",
    "step",
]
