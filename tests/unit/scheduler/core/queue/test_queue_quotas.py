"""Quotas: no limit is passed, what is not lent stays, and a refusal carries its numbers."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import examples
from trainhouse.events.model.policy import SchedulingPolicy, Team
from trainhouse.scheduler.core.queue.quotas import QuotaRefusal, QuotaRule, Quotas
from trainhouse.scheduler.core.queue.resources import Amounts
from trainhouse.scheduler.core.queue.team_tree import QuotaTree

TYPES = ("a100", "h100")


def of(devices: int, device_type: str = "h100") -> Amounts:
    return Amounts(((device_type, devices * 1000),))


def quotas(*teams: Team, h100: int = 16) -> Quotas:
    return Quotas(QuotaTree(SchedulingPolicy(teams=teams)), of(h100))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[SchedulingPolicy, Amounts]:
    """Two levels of teams whose guarantees fit into their parent's and into the pool."""
    left = {t: draw(st.integers(8, 32)) for t in TYPES}
    capacity = Amounts(tuple((t, n * 1000) for t, n in left.items()))
    if draw(st.booleans()):
        left = {"any": sum(left.values())}
    teams: list[Team] = []
    for n in range(draw(st.integers(0, 3))):
        own = {t: draw(st.integers(0, left[t])) for t in left if draw(st.booleans())}
        limit = {k: draw(st.integers(own.get(k, 0), 64)) for k in (*TYPES, "any") if draw(st.integers(0, 3)) == 0}
        for t, count in own.items():
            left[t] -= count
        teams.append(Team(name=f"t{n}", guaranteed=own, limit=limit, lends=draw(st.booleans())))
        spare = dict(own)
        for m in range(draw(st.integers(0, 2))):
            inner = {t: draw(st.integers(0, spare[t])) for t in spare}
            for t, count in inner.items():
                spare[t] -= count
            teams.append(Team(name=f"t{n}.{m}", parent=f"t{n}", guaranteed=inner, lends=draw(st.booleans())))
    return SchedulingPolicy(teams=tuple(teams)), capacity


@settings(max_examples=examples(150))
@given(worlds(), st.integers(0, 2**32))
def test_no_limit_is_passed_and_what_is_not_lent_stays_idle(world: tuple[SchedulingPolicy, Amounts], seed: int) -> None:
    policy, capacity = world
    held, rng, running = Quotas(QuotaTree(policy), capacity), random.Random(seed), []
    names = [*(t.name for t in policy.teams), "x", "y"]
    for _ in range(60):
        if running and rng.random() < 0.3:
            held.add(*running.pop(rng.randrange(len(running))), -1)
            continue
        team, want = rng.choice(names), of(rng.randint(1, 6), rng.choice(TYPES))
        (device_type, milli), total = want.devices[0], dict(capacity.devices)
        fits = held.held("", device_type) + milli <= total[device_type]
        if fits and held.may_start(team, want) is None:
            held.add(team, want)
            running.append((team, want))
        check(held, policy, total | {"any": capacity.all_milli})


def check(held: Quotas, policy: SchedulingPolicy, total: dict[str, int]) -> None:
    for team in policy.teams:
        for device_type, limit in team.limit.items():
            assert held.held(team.name, device_type) <= limit * 1000
        for device_type in total if not team.lends else ():
            idle = total[device_type] - held.held("", device_type)
            assert idle >= held.tree.guaranteed(team.name, device_type) - held.held(team.name, device_type)
    named = {t.name for t in policy.teams}
    for device_type in (*TYPES, "any"):
        tops = [t.name for t in policy.teams if t.parent is None] + ["x", "y"]
        assert held.held("", device_type) == sum(held.held(n, device_type) for n in tops)
        over = sum(milli for _, milli in held.borrowers(device_type))
        assert over >= sum(held.held(n, device_type) for n in ("x", "y") if n not in named)


@given(worlds(), st.sampled_from(TYPES), st.integers(1, 8))
def test_in_an_idle_pool_only_a_limit_or_what_is_not_lent_refuses(
    world: tuple[SchedulingPolicy, Amounts], device_type: str, devices: int
) -> None:
    policy, capacity = world
    held = Quotas(QuotaTree(policy), capacity)
    for team in policy.teams:
        refusal = held.may_start(team.name, of(devices, device_type))
        own = held.tree.guaranteed(team.name, device_type)
        if refusal is not None and refusal.rule is QuotaRule.RESERVED:
            assert refusal.reserved_for and devices * 1000 > 0
            inner = [t for t in policy.teams if t.parent == team.name and not t.lends]
            assert devices * 1000 > own - sum(held.tree.guaranteed(t.name, device_type) for t in inner) or refusal.device_type == "any"


def test_borrowing_stops_at_the_limit_of_any_team_above() -> None:
    held = quotas(Team(name="r", limit={"h100": 8}), Team(name="r1", parent="r"), Team(name="r2", parent="r", limit={"any": 2}))
    held.add("r1", of(7))
    assert held.may_start("r1", of(1)) is None
    assert held.may_start("r1", of(2)) == QuotaRefusal(QuotaRule.LIMIT, "r1", "r", "h100", 2000, 7000, 8000, borrowers=(("r1", 7000),))
    assert held.may_start("other", of(9)) is None
    inner = held.may_start("r2", of(3, "a100"))
    assert inner is not None and (inner.at, inner.device_type, inner.never) == ("r2", "any", True)
    assert inner.text() == "quota: team r2 holds 0 of at most 2 devices; 3 more would pass the limit"
    never = held.limited("r1", of(9))
    assert never is not None and never.never
    assert never.text() == "quota: team r (above r1) holds 7 of at most 8 h100 devices; 9 more would pass the limit"
    assert held.limited("r1", of(8)) is None


def test_what_a_team_does_not_lend_stays_idle_and_what_it_lends_does_not() -> None:
    teams = (Team(name="keeps", guaranteed={"h100": 8}, lends=False), Team(name="lends", guaranteed={"h100": 8}))
    held = quotas(*teams)
    assert held.may_start("x", of(8)) is None
    refusal = held.may_start("x", of(9))
    assert refusal == QuotaRefusal(QuotaRule.RESERVED, "x", "", "h100", 9000, 0, 16_000, (("keeps", 8000),))
    assert refusal.text() == "quota: the pool has 16 h100 devices, 0 are held, and 8 for keeps stay idle (not lent); 9 more are too many"
    held.add("x", of(8))
    back = held.may_start("lends", of(8))
    assert back is not None and back.borrowers == (("x", 8000),), "it waits for what it lent, not for what keeps kept"
    assert held.may_start("keeps", of(8)) is None
    held.add("x", of(8), -1)
    assert held.may_start("lends", of(8)) is None


def test_more_guaranteed_than_there_is_holds_nobody_up() -> None:
    teams = (Team(name="a", guaranteed={"h100": 8}, lends=False), Team(name="b", guaranteed={"h100": 8}, lends=False))
    held = quotas(*teams, h100=8)
    assert held.may_start("a", of(8)) is None and held.may_start("b", of(8)) is None
    assert held.may_start("x", of(1)) is not None


def test_a_family_uses_what_its_parent_is_guaranteed() -> None:
    teams = (
        Team(name="r", guaranteed={"any": 12}, lends=False),
        Team(name="r1", parent="r"),
        Team(name="r2", parent="r", guaranteed={"any": 4}, lends=False),
    )
    held = quotas(*teams)
    assert held.may_start("r1", of(12)) is None, "8 of the family's, 4 idle ones of the pool"
    refusal = held.may_start("r1", of(13))
    assert refusal is not None and refusal.reserved_for == (("r2", 4000),)
    other = held.may_start("x", of(5))
    assert other is not None and other.reserved_for == (("r", 12_000),)
    assert held.may_start("x", of(4)) is None


def test_shares_of_devices_add_up() -> None:
    held = quotas(Team(name="a", limit={"any": 1}))
    held.add("a", Amounts((("h100", 700),)))
    assert held.may_start("a", Amounts((("h100", 300),))) is None
    refusal = held.may_start("a", Amounts((("h100", 301),)))
    assert refusal is not None
    assert refusal.text() == "quota: team a holds 0.7 of at most 1 devices; 0.301 more would pass the limit"
    assert not refusal.never


def test_a_fork_shares_no_change() -> None:
    held = quotas()
    held.add("x", of(2))
    assert held.held("") == 2000
    twin = held.fork()
    twin.add("x", of(3))
    assert (twin.held(""), twin.borrowers()) == (5000, (("x", 5000),))
    assert (held.held(""), held.borrowers()) == (2000, (("x", 2000),))
