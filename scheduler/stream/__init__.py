"""The stream processors: pure machines run over Kafka by the journal protocol.

`intake_main`, `scheduler_main` and `detector_main` each run one process by settings alone.
Never: decides; that is `scheduler.core`.
"""

from trainhouse.scheduler.stream.detector import detector_main
from trainhouse.scheduler.stream.intake import intake_main
from trainhouse.scheduler.stream.ports import SnapshotStore
from trainhouse.scheduler.stream.scheduler import scheduler_main
from trainhouse.scheduler.stream.settings import StreamSettings

__all__ = ["SnapshotStore", "StreamSettings", "detector_main", "intake_main", "scheduler_main"]
