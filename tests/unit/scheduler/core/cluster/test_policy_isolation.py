"""`isolation: required` in a pool's policy: which nodes run jobs, what the others say, and what changes with the policy."""

from tests.support.core_world import Driver, admitted, policy_changed, registered
from trainhouse.events import GangAllocated
from trainhouse.events.model.node import IsolationLayer, NodeIsolation
from trainhouse.scheduler.core.cluster.node_filters import FilterResult
from trainhouse.scheduler.core.explain.node_reasons import nodes_asked

WHOLE = NodeIsolation(mode="preferred", complete=True)
PART = NodeIsolation(
    mode="preferred",
    complete=False,
    reason="namespaces: not permitted",
    layers=(IsolationLayer(name="namespaces", on=False, reason="not permitted"),),
)


def placed(d: Driver, job_id: str) -> list[str]:
    return [str(p.node_id) for g in d.all(GangAllocated, job_id=job_id) for p in g.placements]


def test_only_nodes_that_confine_jobs_run_them_and_the_others_say_why_not() -> None:
    d = Driver()
    d.feed(registered("bare"), registered("part", isolation=PART), registered("whole", slots=1, isolation=WHOLE))
    d.feed(policy_changed(isolation="required"))
    d.feed(admitted("one"), admitted("two"))
    assert placed(d, "one") + placed(d, "two") == ["whole"]
    waiting = d.state.book.lanes.get("two") or d.state.book.lanes.get("one")
    assert waiting is not None
    said = {a.node_id: (a.says, a.text) for a in nodes_asked(d.state.book, waiting.shape)}
    assert said["part"] == (FilterResult.ISOLATION, "no isolation (namespaces: not permitted)")
    assert said["bare"] == (FilterResult.ISOLATION, "no isolation (its agent does not say how it confines jobs)")
    assert said["whole"][0] is FilterResult.FULL


def test_the_policy_counts_for_jobs_that_wait_already_and_no_label_passes_for_isolation() -> None:
    d = Driver()
    d.feed(policy_changed(isolation="required"))
    d.feed(registered("false", labels={"trainhouse.isolated": "true"}, isolation=PART), registered("idle", slots=1, isolation=WHOLE))
    d.feed(admitted("one"), admitted("two"))
    assert placed(d, "one") + placed(d, "two") == ["idle"]
    d.feed(policy_changed(isolation="any"), wait_ms=2000)
    d.tick()
    assert sorted(placed(d, "one") + placed(d, "two")) == ["false", "idle"]
