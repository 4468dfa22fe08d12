"""Why a job waits: each obstacle with its numbers, on books built by hand."""

from tests.support.shapes import simple
from trainhouse.events.model.explanation import JobExplained, Obstacle
from trainhouse.events.model.policy import Blocking, SchedulingPolicy, Team
from trainhouse.scheduler.core.cluster.node_slots import NodeSlots
from trainhouse.scheduler.core.cluster.place import place
from trainhouse.scheduler.core.cluster.shape import Part, Shape
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.cycle import run_cycle
from trainhouse.scheduler.core.explain.diagnosis import MOST_EXAMPLES
from trainhouse.scheduler.core.explain.node_reasons import nodes_asked
from trainhouse.scheduler.core.explain.waiting import explain_pool
from trainhouse.scheduler.core.queue.entries import Claim, Running, Waiting

NOW = 1_000_000
HOUR = 3_600_000


def node(index: int, *, rack: str = "r1", opened: bool = True, device_type: str = "H100") -> NodeSlots:
    return NodeSlots(
        index=index,
        node_id=f"n{index}",
        pool="p",
        types=(device_type,) * 8,
        memory_bytes=(80 << 30,) * 8,
        domains=(("rack", rack),),
        open=opened,
    )


def book(*nodes: NodeSlots, policy: SchedulingPolicy | None = None) -> Book:
    made = Book()
    for slots in nodes:
        made.put_node(slots)
    made.set_policy("p", policy or SchedulingPolicy(), 0)
    return made


def waits(
    job_id: str, shape: Shape, number: int = 1, *, team: str = "vision", run_ms: int | None = None, not_before_ms: int = 0
) -> Waiting:
    return Waiting(
        job_id=job_id, number=number, team=team, priority=50, shape=shape, submitted_ms=NOW - HOUR, since_ms=NOW - HOUR,
        run_ms=run_ms, not_before_ms=not_before_ms,
    )  # fmt: skip


def runs(b: Book, job_id: str, shape: Shape, ends_ms: int | None) -> None:
    placement = place(b.cluster, shape, b.policy("p").packing)
    assert placement is not None
    b.cluster.take(placement, shape)
    b.put_running(Running(waits(job_id, shape), placement, NOW - HOUR, ends_ms, NOW - HOUR), NOW - HOUR)


def told(b: Book, frozen: str = "") -> dict[str, JobExplained]:
    return {a.job_id: a.build() for a in explain_pool(b, "p", NOW, frozen)}


def test_no_room_says_how_much_is_free_and_when_more_comes_free() -> None:
    b = book(node(0), node(1))
    runs(b, "long", simple("p", 8), NOW + HOUR)
    runs(b, "longer", simple("p", 4), NOW + 2 * HOUR)
    b.put_waiting(waits("big", simple("p", 12)))
    why = told(b)["big"]
    assert why.obstacle is Obstacle.NO_ROOM
    assert "4 such places are free" in why.text
    assert why.unblock[0] == "8 more free devices"
    assert (why.eta_ms, why.eta_from[:17]) == (NOW + HOUR, "the expected ends")
    assert [(r.obstacle, r.count) for r in why.refusals] == [(Obstacle.NO_ROOM, 1)]


def test_a_required_level_names_its_roomiest_domain() -> None:
    b = book(node(0, rack="r1"), node(1, rack="r2"), node(2, rack="r2"))
    runs(b, "other", simple("p", 4), None)
    b.put_waiting(waits("rack", Shape("p", simple("p", 18).blocks, require="rack")))
    why = told(b)["rack"]
    assert (why.obstacle, why.refusals[0].by, why.refusals[0].asked, why.refusals[0].available) == (Obstacle.TOPOLOGY, "rack", 18, 16)
    assert why.unblock[0] == "2 more free devices in one rack"


def test_closed_nodes_are_told_with_the_way_out() -> None:
    b = book(node(0, opened=False))
    b.put_waiting(waits("j", simple("p", 1)))
    why = told(b)["j"]
    assert why.obstacle is Obstacle.NODES_CLOSED
    assert any("cordoned" in way for way in why.unblock)


def test_a_quota_refuses_with_team_and_numbers() -> None:
    policy = SchedulingPolicy(teams=(Team(name="vision", limit={"any": 8}),))
    b = book(node(0), node(1), policy=policy)
    runs(b, "first", simple("p", 6), None)
    b.put_waiting(waits("j", simple("p", 4)))
    why = told(b)["j"]
    assert (why.obstacle, why.refusals[0].by, why.refusals[0].available) == (Obstacle.QUOTA, "vision", 2)
    assert why.unblock[0].startswith("2 devices of team vision")


def test_who_would_push_a_held_start_back_is_told_how_short_to_be() -> None:
    b = book(node(0), node(1))
    runs(b, "half", simple("p", 4), NOW + HOUR)
    b.put_waiting(waits("big", simple("p", 16), 1, run_ms=HOUR))
    b.put_waiting(waits("long", simple("p", 2), 2, run_ms=3 * HOUR))
    run_cycle(b, NOW)
    assert b.reservations["big"].start_ms == NOW + HOUR
    why = told(b)
    assert why["big"].reserved_start_ms == why["big"].eta_ms == NOW + HOUR
    assert (why["long"].obstacle, why["long"].refusals[0].by) == (Obstacle.RESERVATION, "big")
    assert why["long"].unblock[0] == "limits.run_time_s of at most 1 h 0 min"
    assert why["long"].refusals[-1].text == "1 job before it asks for 16 devices"


def test_a_strict_order_names_the_job_that_comes_first() -> None:
    b = book(node(0), policy=SchedulingPolicy(name="fifo", order="submit", blocking=Blocking.STRICT))
    runs(b, "half", simple("p", 4), None)
    b.put_waiting(waits("big", simple("p", 8), 1))
    b.put_waiting(waits("small", simple("p", 1), 2))
    assert (told(b)["small"].obstacle, told(b)["small"].refusals[0].by) == (Obstacle.ORDER, "big")


def test_every_waiting_job_is_explained_and_a_pause_or_freeze_is_told() -> None:
    b = book(node(0))
    for number in range(20):
        b.put_waiting(waits(f"j{number}", simple("p", 1 + number % 9), number, not_before_ms=NOW + 5_000 if number == 3 else 0))
    why = told(b)
    assert sorted(why) == sorted(f"j{n}" for n in range(20))
    assert sorted(w.place for w in why.values()) == list(range(1, 21))
    assert (why["j3"].obstacle, why["j3"].eta_ms) == (Obstacle.BACKOFF, NOW + 5_000)
    assert {w.obstacle for w in told(b, "it raised").values()} == {Obstacle.FROZEN}


def test_devices_on_their_way_name_who_leaves() -> None:
    b = book(node(0))
    runs(b, "victim", simple("p", 8), None)
    leaving = b.running["victim"]
    b.put_running(Running(leaving.job, leaving.placement, leaving.started_ms, None, leaving.saved_ms, NOW + 60_000), NOW)
    b.put_waiting(waits("heir", simple("p", 8)))
    b.hold(Claim("heir", (Part(0, 255),), ("victim",), NOW))
    why = told(b)["heir"]
    assert (why.obstacle, why.eta_ms) == (Obstacle.COMING, NOW + 60_000)
    assert "victim" in why.text


def test_the_key_changes_with_the_obstacle_and_not_with_every_look() -> None:
    b = book(node(0))
    runs(b, "other", simple("p", 8), None)
    b.put_waiting(waits("j", simple("p", 8)))
    (first,) = explain_pool(b, "p", NOW)
    (again,) = explain_pool(b, "p", NOW + 1)
    assert first.key == again.key
    (frozen,) = explain_pool(b, "p", NOW, "it raised")
    assert frozen.key != first.key


def test_refusals_name_some_nodes_and_whoever_asks_hears_every_node() -> None:
    b = book(*(node(i, opened=i < 6) for i in range(8)), node(8, device_type="A100"))
    runs(b, "runs", simple("p", 8, "H100"), NOW + HOUR)
    shape = simple("p", 64, "H100")
    b.put_waiting(waits("big", shape))
    closed, full, other = sorted((r for r in told(b)["big"].refusals if r.by == "nodes"), key=lambda r: (-r.count, r.text))
    assert (closed.obstacle, closed.count, closed.examples) == (Obstacle.NODES_CLOSED, 2, ("n6", "n7"))
    assert {full.obstacle, other.obstacle} == {Obstacle.NO_ROOM, Obstacle.DEVICE_TYPE}
    answers = nodes_asked(b, shape)
    assert [a.node_id for a in answers] == [f"n{i}" for i in range(9)]
    assert [a.says.value for a in answers] == ["FULL", *["ROOM"] * 5, "CLOSED", "CLOSED", "OTHER_TYPE"]
    assert [(a.free, a.devices) for a in answers[:2]] == [(0, 8), (8, 8)] and answers[8].text == "of another device type"


def test_no_more_than_a_few_nodes_are_named() -> None:
    b = book(*(node(i, opened=False) for i in range(40)), node(40))
    b.put_waiting(waits("big", simple("p", 16)))
    (closed,) = (r for r in told(b)["big"].refusals if r.obstacle is Obstacle.NODES_CLOSED)
    assert closed.count == 40 and closed.examples == tuple(f"n{i}" for i in range(MOST_EXAMPLES))
