"""A policy that a pool's nodes cannot obey is refused with the line, and the old one stays; a preferred level reaches every gang."""

from typing import Any

from tests.support.core_world import Driver, admitted, policy_changed, registered
from trainhouse.events import ChangeRefused, PolicyApplied

TEXT = "teams:\n- name: a\n  limit:\n    any: 9\n    h800: 4\ntopology:\n  prefer: row\n"


def test_a_policy_that_the_nodes_cannot_obey_is_refused_with_its_lines_and_the_old_one_stays() -> None:
    d = Driver()
    d.feed(registered("a", labels={"rack": "r1"}), policy_changed(blocking="strict"))
    policy: dict[str, Any] = {"teams": [{"name": "a", "limit": {"any": 9, "h800": 4}}], "topology": {"prefer": "row"}}
    d.feed(policy_changed(text=TEXT, **policy))
    reason = d.last(ChangeRefused).reason
    assert reason.startswith("line 5: teams[0].limit.h800: no node of this pool has a device of type h800; it has cpu; ")
    assert "; line 7: topology.prefer: no node of this pool tells a topology level row; they tell node, rack" in reason
    assert len(d.all(PolicyApplied)) == 1 and d.state.book.policy("default").blocking == "strict"
    d.feed(policy_changed(text="", **policy))
    assert d.last(ChangeRefused).reason.startswith("teams[0].limit.h800: "), "without the text there is no line"


def test_a_preferred_level_counts_for_gangs_that_name_none_and_follows_the_policy() -> None:
    d = Driver()
    d.feed(registered("a", labels={"rack": "r1"}), policy_changed(topology={"prefer": "rack"}))
    d.feed(admitted("plain", ranks=2), admitted("waits", ranks=2), admitted("own", gang={"ranks": 2, "prefer": "node"}))
    lanes = d.state.book.lanes

    def prefers(job_id: str) -> str:
        job = lanes.get(job_id)
        assert job is not None
        return job.shape.prefer

    assert (prefers("waits"), prefers("own")) == ("rack", "node")
    d.feed(policy_changed())
    assert (prefers("waits"), prefers("own")) == ("", "node")
    assert d.machine.dump(d.machine.load(d.machine.dump(d.state))) == d.machine.dump(d.state)
