"""Whom a failure is blamed on: node, device, network, storage, a shard of the data, user code, or the platform.

Holds: pure; equal evidence and rules give an equal answer on every machine.
Never: acts (the scheduler's machine does).
"""

from trainhouse.scheduler.core.blame.attempt_evidence import Blamed, Evidence, PastFailure, RankEnd
from trainhouse.scheduler.core.blame.classify import blame
from trainhouse.scheduler.core.blame.log_excerpt import gist

__all__ = ["Blamed", "Evidence", "PastFailure", "RankEnd", "blame", "gist"]
