"""A short campaign of probes on the shared stack: no door gives what belongs to another project."""

from tests.security.__main__ import campaign
from tests.security.campaign.target import prepare
from tests.support.stack.live_stack import LiveStack

PROBES, SEED = 300, 20_261


def test_no_probe_of_any_door_gets_through(stack: LiveStack) -> None:
    tally = campaign(prepare(stack), PROBES, SEED)
    assert tally.total >= PROBES * 9 // 10
    assert not tally.successes, "\n".join(tally.lines())
