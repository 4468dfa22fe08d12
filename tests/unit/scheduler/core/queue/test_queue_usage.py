"""Shares: they follow from starts and stops, not from who asks when."""

from hypothesis import given
from hypothesis import strategies as st

from trainhouse.events.model.policy import FairShare, SchedulingPolicy, Team
from trainhouse.scheduler.core.queue.resources import Amounts
from trainhouse.scheduler.core.queue.team_tree import QuotaTree
from trainhouse.scheduler.core.queue.usage import Usage

POLICY = SchedulingPolicy(fair_share=FairShare(half_life_h=1.0), teams=(Team(name="a", weight=3.0), Team(name="a1", parent="a")))
CAPACITY = Amounts((("a100", 16_000), ("h100", 64_000)), cpus_milli=1_000_000, memory_bytes=1 << 40)
TEAMS = ("a", "a1", "b", "c")
EVENTS = st.lists(
    st.tuples(st.integers(0, 5_000_000), st.sampled_from(TEAMS), st.sampled_from(["a100", "h100"]), st.integers(1, 8_000), st.booleans()),
    max_size=25,
)
Event = tuple[int, str, str, int, bool]


def played(events: list[Event], ask: bool = False) -> tuple[Usage, int]:
    """Starts, and stops of what runs longest; `ask`: questions in between."""
    usage = Usage()
    usage.set_policy("p", POLICY)
    usage.set_capacity("p", CAPACITY)
    now_ms, running = 0, []
    for wait_ms, team, device_type, milli, stop in events:
        if ask:
            for name in TEAMS:
                usage.share("p", name, now_ms + wait_ms // 2)
                usage.fair_shares("p", TEAMS)
        now_ms += wait_ms
        if stop and running:
            usage.stop("p", *running.pop(0), now_ms)
        else:
            running.append((team, Amounts(((device_type, milli),), cpus_milli=milli, memory_bytes=milli << 10)))
            usage.start("p", *running[-1], now_ms)
    return usage, now_ms


def shares(usage: Usage, now_ms: int) -> list[float]:
    return [usage.share("p", team, now_ms) for team in TEAMS]


@given(EVENTS)
def test_shares_do_not_depend_on_questions(events: list[Event]) -> None:
    (asked, now_ms), (silent, _) = played(events, ask=True), played(events)
    assert asked == silent
    for later_ms in (now_ms, now_ms + 1, now_ms + 10_000_000):
        assert shares(asked, later_ms) == shares(silent, later_ms)


@given(EVENTS, EVENTS)
def test_a_fork_shares_no_change(events: list[Event], more: list[Event]) -> None:
    usage, now_ms = played(events)
    before, rows = shares(usage, now_ms), usage.rows()
    held = [usage.quotas("p").held(team) for team in TEAMS]
    fork = usage.fork()
    for wait_ms, team, device_type, milli, _ in more:
        fork.start("p", team, Amounts(((device_type, milli),)), now_ms + wait_ms)
    assert (shares(usage, now_ms), usage.rows()) == (before, rows)
    assert [usage.quotas("p").held(team) for team in TEAMS] == held


@given(EVENTS)
def test_rows_bring_all_of_it_back(events: list[Event]) -> None:
    usage, now_ms = played(events)
    again = Usage()
    again.set_policy("p", POLICY)
    again.set_capacity("p", CAPACITY)
    again.restore(usage.rows())
    assert again == usage and shares(again, now_ms) == shares(usage, now_ms)
    assert again.of("p").running() == usage.of("p").running()
    for name in ("", *TEAMS):
        for device_type in ("any", "a100", "h100"):
            assert again.quotas("p").held(name, device_type) == usage.quotas("p").held(name, device_type)


@given(EVENTS)
def test_another_policy_keeps_what_was_used_and_is_held(events: list[Event]) -> None:
    usage, now_ms = played(events)
    before, rows = shares(usage, now_ms), usage.rows()
    usage.set_policy("p", SchedulingPolicy(teams=(Team(name="b"), Team(name="a", parent="b"))))
    held = usage.quotas("p").held
    assert held("b") == sum(held("", t) for t in ("a100", "h100")) - held("c") - held("a1")
    usage.set_policy("p", POLICY)
    assert (shares(usage, now_ms), usage.rows()) == (before, rows)


def test_the_dominant_resource_makes_the_share() -> None:
    usage = Usage()
    usage.set_policy("p", SchedulingPolicy(fair_share=FairShare(history=0.0)))
    usage.set_capacity("p", CAPACITY)
    usage.start("p", "a", Amounts((("h100", 8_000),), cpus_milli=500_000), 0)
    assert dict(usage.of("p").shares("a", 0)) == {"cpus": 0.5, "h100": 0.125}
    assert usage.share("p", "a", 0) == 0.5
    usage.stop("p", "a", Amounts((("h100", 8_000),), cpus_milli=500_000), 10)
    assert usage.share("p", "a", 10) == 0.0


def test_history_and_what_is_held_both_count() -> None:
    usage = Usage()
    usage.set_policy("p", POLICY)
    usage.set_capacity("p", CAPACITY)
    day_ms = 24 * 3_600_000
    usage.start("p", "a", Amounts((("h100", 64_000),)), 0)
    assert usage.share("p", "a", 0) == 0.5, "held at once, no past yet"
    assert abs(usage.share("p", "a", day_ms) - 1.0) < 1e-3
    usage.stop("p", "a", Amounts((("h100", 64_000),)), day_ms)
    assert abs(usage.share("p", "a", day_ms) - 0.5) < 1e-3
    assert abs(usage.share("p", "a", day_ms + 3_600_000) - 0.25) < 1e-3, "one half-life later"


@st.composite
def trees(draw: st.DrawFn) -> tuple[Team, ...]:
    count = draw(st.integers(0, 8))
    parents = [draw(st.sampled_from([None, *(f"t{p}" for p in range(n))])) for n in range(count)]
    return tuple(Team(name=f"t{n}", parent=parents[n], weight=draw(st.floats(0.01, 100))) for n in range(count))


@given(trees(), st.sets(st.sampled_from([*(f"t{n}" for n in range(8)), "x", "y"]), min_size=1))
def test_fair_shares_add_up_to_one_and_follow_the_weights(teams: tuple[Team, ...], active: set[str]) -> None:
    tree = QuotaTree(SchedulingPolicy(teams=teams))
    fair = tree.fair_shares(tuple(sorted(active)))
    assert sorted(fair) == sorted(active)
    assert abs(sum(fair.values()) - 1.0) < 1e-9 and min(fair.values()) > 0
    weights = {t.name: t.weight for t in teams}
    alone = {t.name for t in teams if t.parent is None and not any(o.parent == t.name for o in teams)}
    pair = sorted(active & (alone | {"x", "y"}))[:2]
    if len(pair) == 2:
        assert abs(fair[pair[0]] * weights.get(pair[1], 1.0) - fair[pair[1]] * weights.get(pair[0], 1.0)) < 1e-9


def test_fair_shares_go_down_the_tree_to_those_with_demand() -> None:
    teams = (Team(name="r", weight=3.0), Team(name="r1", parent="r"), Team(name="r2", parent="r", weight=3.0), Team(name="v"))
    tree = QuotaTree(SchedulingPolicy(teams=teams))
    assert tree.fair_shares(("r1", "r2", "v")) == {"r1": 0.1875, "r2": 0.5625, "v": 0.25}
    assert tree.fair_shares(("r2", "v")) == {"r2": 0.75, "v": 0.25}
    assert tree.fair_shares(("r", "r1")) == {"r": 0.5, "r1": 0.5}
    assert tree.fair_shares(()) == {}
