"""What a policy does with teams that it does not list: they borrow without bound (the default), or are refused until they are listed."""

from tests.support.core_world import Driver, admitted, policy_changed, registered, run_through
from trainhouse.events import GangAllocated, JobState
from trainhouse.events.model.policy import SchedulingPolicy, UnlistedTeams
from trainhouse.scheduler.core.explain.explainer import explain_job
from trainhouse.scheduler.policies.load import load, names

LISTED = [{"name": "research"}, {"name": "vision", "parent": "research"}]


def test_the_default_takes_every_team_and_is_written_as_before() -> None:
    d = Driver()
    d.feed(registered("a"), policy_changed(teams=LISTED), admitted("j", team="speech"))
    assert d.all(GangAllocated, job_id="j")
    assert all(load(name).unlisted_teams is UnlistedTeams.UNLIMITED for name in names())
    assert "unlisted_teams" not in SchedulingPolicy().model_dump_json()


def test_refused_means_rejected_with_the_team_the_pool_and_the_command() -> None:
    d = Driver()
    d.feed(registered("a"), policy_changed(teams=LISTED, unlisted_teams="refused"))
    d.feed(admitted("j", team="speech"), admitted("k", team="vision"), admitted("l", team="research"))
    refused = d.status("j")
    assert refused.state is JobState.REJECTED and not d.all(GangAllocated, job_id="j")
    assert refused.reason == (
        "team speech has no quota in pool default, and the pool's policy refuses such teams (unlisted_teams: refused). "
        "List the team under `teams` (`trainhouse policy show default > FILE`, then `trainhouse policy apply default FILE`), "
        "and submit the job under a new id"
    )
    assert d.all(GangAllocated, job_id="k") and d.all(GangAllocated, job_id="l")


def test_without_any_team_listed_all_are_refused() -> None:
    d = Driver()
    d.feed(registered("a"), policy_changed(unlisted_teams="refused"), admitted("j", team="speech"))
    assert d.status("j").state is JobState.REJECTED


def test_a_job_that_waits_when_the_policy_changes_waits_until_its_team_is_listed_and_what_runs_goes_on() -> None:
    d = Driver()
    d.feed(registered("a"), admitted("runs", team="speech", ranks=2), admitted("waits", team="speech", ranks=1))
    d.feed(policy_changed(teams=LISTED, unlisted_teams="refused"))
    run_through(d, d.last(GangAllocated, job_id="runs"))
    d.tick(60_000)
    assert d.status("runs").state is JobState.SUCCEEDED
    assert d.status("waits").state is JobState.PENDING and not d.all(GangAllocated, job_id="waits")
    told = explain_job(d.state, "waits", d.now_ms)
    assert told is not None and told.text == "quota: team speech has none in pool default, whose policy refuses teams that it does not list"
    assert told.unblock == ("a policy that lists team speech: `trainhouse policy apply default FILE`",)
    d.feed(policy_changed(teams=[*LISTED, {"name": "speech"}], unlisted_teams="refused"))
    d.tick(1_000)
    assert d.all(GangAllocated, job_id="waits")
