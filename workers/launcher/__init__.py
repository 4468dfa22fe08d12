"""Start, watch and end the ranks of an attempt on this node.

Holds: importing it imports no torch.
"""

from trainhouse.workers.launcher.eligible import start_time_environment
from trainhouse.workers.launcher.launcher import Launcher
from trainhouse.workers.launcher.ports import (
    AttemptPaths,
    ExitRecord,
    LaunchError,
    RankLaunch,
    RankLauncher,
    RankPaths,
    Started,
    StoreSocket,
)
from trainhouse.workers.launcher.processes import attempt_alive, kill_keeper, kill_tree, rank_alive, read_exit, terminate

__all__ = [
    "AttemptPaths",
    "ExitRecord",
    "LaunchError",
    "Launcher",
    "RankLaunch",
    "RankLauncher",
    "RankPaths",
    "Started",
    "StoreSocket",
    "attempt_alive",
    "kill_keeper",
    "kill_tree",
    "rank_alive",
    "read_exit",
    "start_time_environment",
    "terminate",
]
