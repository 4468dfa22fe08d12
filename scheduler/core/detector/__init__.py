"""The failure detector: a pure machine and its rules, one file each.

Holds: silence of nodes (`silence`, `rhythm`, `silent`), hung gangs (`hang`, `hung`), stragglers (`straggler`), devices (`device`,
`degraded`), waiting for data or saves (`totals`, `stalls`); all limits come from the policy of the node's pool.
Never: reaches a clock, a log or a network.
"""

from trainhouse.scheduler.core.detector.detector_machine import DetectorMachine
from trainhouse.scheduler.core.detector.open_verdicts import IssuedVerdict
from trainhouse.scheduler.core.detector.restore import Standings, recall, still_standing
from trainhouse.scheduler.core.detector.silence import Liveness
from trainhouse.scheduler.core.detector.state import DetectorState

__all__ = ["DetectorMachine", "DetectorState", "IssuedVerdict", "Liveness", "Standings", "recall", "still_standing"]
