"""Detector and scheduler together: a node that dies is lost by the name under which it registered last."""

from tests.support.core_world import Driver, registered, running
from tests.support.detector_world import Listener, beat
from trainhouse.events import AttemptRef, JobState, NodeLost
from trainhouse.events.model.decisions import NodeGivenUp


def test_a_node_that_dies_right_after_it_registered_again_is_lost_since_it_was_heard_before() -> None:
    d, s = Listener(), Driver()
    d.listen(1)
    s.feed(registered("n"), registered("m"))
    gang = running(s, "j", ranks=2)
    (part,) = gang.placements
    about = {"node_id": part.node_id, "boot_id": part.boot_id, "pool": "default"}
    d.hear(beat(1, incarnation="inc-1", at_ms=1, **about))
    d.hear(beat(2, incarnation="inc-2", at_ms=2, **about))
    ref = AttemptRef(job_id=gang.job_id, attempt=gang.attempt, epoch=gang.epoch)
    s.feed(registered(part.node_id, incarnation="inc-2", running=(ref,)))
    assert d.listen(20) == ["NodeSuspected", "NodeLost"]
    verdict = d.said[-1].event
    assert isinstance(verdict, NodeLost)
    s.feed(verdict)
    assert s.last(NodeGivenUp).node_id == part.node_id
    assert s.status("j").state is JobState.SCHEDULED and s.state.jobs["j"].epoch == 2
