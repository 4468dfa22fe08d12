"""What happens to a simulated fleet: its nodes, its jobs, the people who ask for things, and the faults, all from the world's seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.simulation.schedule_world import World
from tests.support.core_world import admitted
from trainhouse.events import (
    CancelJob,
    ChangeJob,
    CordonNode,
    DrainNode,
    Event,
    PolicyChanged,
    QuarantineNode,
    ReviewAction,
    ReviewJob,
    UncordonNode,
)
from trainhouse.events.model.phases import UnderReview

FAULTS_MS: Final = 400_000
HEALED_WITHIN_MS: Final = 4_000_000
REVIEWED_WITHIN_MS: Final = 1_800_000
TEAMS = ("lm", "vision", "infra", "free")
QUOTAS: Final[list[dict[str, Any]]] = [
    {"name": "org", "limit": {"any": 60}},
    {"name": "lm", "parent": "org", "guaranteed": {"any": 16}, "limit": {"h100": 40}, "weight": 2},
    {"name": "vision", "parent": "org", "guaranteed": {"any": 8}},
    {"name": "infra", "guaranteed": {"any": 4}, "lends": False},
]
OURS: Final[dict[str, Any]] = {
    "teams": QUOTAS,
    "score": {"wait_in_run_times": True, "wait_bonus_per_h": 2, "wait_bonus_max": 100},
    "backfill": {"reservations": 2},
    "preemption": {"enabled": True, "min_run_s": 10, "checkpoint_deadline_s": 8, "margin": 10, "restart_cost_s": 2},
    "elastic": {"enabled": True, "grow_after_s": 10},
    "defragmentation": {"enabled": True, "min_gain": 1, "max_moves_per_h": 40, "look_every_s": 1},
}
BACKFILL: Final[dict[str, Any]] = {"order": "submit", "blocking": "backfill", "run_times": "limits", "elastic": {"enabled": False}}
POLICIES: Final[dict[str, dict[str, Any]]] = {
    "ours": OURS,
    "fifo": {"order": "submit", "blocking": "strict", "run_times": "limits", "elastic": {"enabled": False}},
    "backfill": BACKFILL,
    "fair": {"order": "fair", "blocking": "backfill", "teams": QUOTAS, "elastic": {"enabled": False}},
    "eager": OURS | {"order": "remaining", "blocking": "skip", "run_times": "limits"},
}


def fleet(world: World) -> None:
    """Seven nodes of eight and two of four devices in one pool, in three racks; a small second pool."""
    for n in range(7):
        world.join(f"n{n}", 8, "h100", "default", {"rack": f"r{n // 3}", "pod": "p0"})
    for n in range(2):
        world.join(f"m{n}", 4, "l4", "default", {"rack": "r2", "spot": "true", "disk": "fast"})
    world.join("lab0", 4, "l4", "lab", {"rack": "r9"})


def draw_job(world: World, number: int) -> None:
    """One job of any kind."""
    rng, job_id = world.rng, f"j{number}"
    kind = rng.randrange(12)
    ranks = rng.choice([1, 1, 2, 2, 4, 4, 8, 8, 12, 16, 24, 32])
    gang: dict[str, Any] = {"ranks": ranks}
    resources: dict[str, Any] = {}
    more: dict[str, Any] = {}
    match kind:
        case 0:
            gang, resources = {"ranks": 1}, {"device_share": rng.choice([250, 300, 500])}
        case 1 | 2 | 3:
            ranks = rng.choice([8, 16, 32])
            gang = {"ranks": ranks, "min_ranks": ranks // 4}
        case 4:
            gang = {
                "ranks": 6,
                "roles": [{"name": "actor", "ranks": 2, "resources": {"device_type": "l4"}}, {"name": "learner", "ranks": 4}],
            }
        case 5:
            gang = {"ranks": rng.choice([4, 8, 16]), "require": rng.choice(["node", "rack"])}
            gang = gang if gang["ranks"] < 16 else {"ranks": 16, "require": "rack"}
        case 6:
            gang = {"ranks": 8, "prefer": "rack", "group_ranks": 4}
        case 7:
            gang = {"ranks": rng.choice([48, 56, 64])} if rng.random() < 0.5 else {"ranks": 4, "prefer": "node"}
        case 8:
            resources, gang = {"device_type": "l4"}, {"ranks": rng.choice([1, 2, 4])}
            more["placement"] = {"node_labels": {"disk": "fast"}}
        case 9:
            more["placement"], resources = {"spot": False}, {"device_type": "h100"}
    if rng.random() < 0.12 and gang["ranks"] <= 4 and not gang.get("roles") and "placement" not in more:
        more["pool"] = "lab"
    if rng.random() < 0.1:
        more["preemptible"] = False
    work_s = rng.choice([5, 10, 20, 40, 80])
    limits = {
        "restarts": rng.randrange(4),
        "grace_s": rng.choice([0.0, 2.0]),
        "run_time_s": rng.choice([None, 20.0 * work_s, 60.0 * work_s, 20.0]),
    }
    more |= {"gang": gang, "resources": resources, "team": rng.choice(TEAMS), "priority": rng.choice([5, 30, 50, 50, 80]), "limits": limits}
    if rng.random() < 0.5:
        more["divergence"] = {"action": "rollback", "checkpoints": rng.choice([1, 2]), "rollbacks": 2}
    world.submit(admitted(job_id, **more), job_id, work_s * 1000, fail=rng.choice([0, 0.2, 0.6]))


def people(world: World, jobs: int, step_ms: int) -> None:
    """Submissions, and now and then something else that somebody asks for."""
    for number in range(jobs):
        world.at(world.now_ms + world.rng.randrange(FAULTS_MS * 3 // 4), lambda n=number: draw_job(world, n))

    ask_now_and_then(world, step_ms)


def ask_now_and_then(world: World, step_ms: int) -> None:
    """Somebody asks for something, as long as things go wrong."""

    def ask() -> None:
        if world.faulty:
            world.ask(_wish(world))
            world.at(world.now_ms + world.rng.randrange(step_ms), ask)

    world.at(world.now_ms + 5_000, ask)


def _wish(world: World) -> Event:
    rng = world.rng
    job_id = rng.choice(sorted(world.jobs) or ["nobody"])
    node = world.nodes[rng.choice(sorted(world.nodes))]
    on_node = {"pool": node.pool, "node_id": node.name, "reason": "maintenance", "user": "ada"}
    match rng.randrange(10):
        case 0:
            return CancelJob.model_validate({"job_id": job_id})
        case 1:
            return ChangeJob.model_validate({"job_id": job_id, "priority": rng.choice([0, 40, 90])})
        case 2:
            return ChangeJob.model_validate({"job_id": job_id, "limits": {"restarts": 2, "run_time_s": 2_000.0}})
        case 3:
            return policy_event(rng.choice(["ours", "ours", *sorted(POLICIES)]))
        case 4:
            return CordonNode.model_validate(on_node)
        case 5:
            return DrainNode.model_validate(on_node | {"deadline_s": rng.choice([0.0, 10.0])})
        case 6 if rng.random() < 0.5:
            return QuarantineNode.model_validate(on_node)
        case 7:
            return review(job_id, rng.choice([ReviewAction.SEND, ReviewAction.SEND, *ReviewAction]))
        case _:
            return UncordonNode.model_validate(on_node)


def review(job_id: str, action: ReviewAction) -> Event:
    return ReviewJob.model_validate({"job_id": job_id, "action": action, "reason": "a look", "user": "ada"})


def policy_event(name: str) -> Event:
    """Somebody asks for one of the policies, by name."""
    return PolicyChanged.model_validate({"pool": "default", "policy": POLICIES[name] | {"name": name}, "user": "ada"})


def faults(world: World, step_ms: int) -> None:
    """Something goes wrong, now and again."""

    def strike() -> None:
        if world.faulty:
            fault_of_a_node(world)
            world.at(world.now_ms + world.rng.randrange(step_ms), strike)

    world.at(world.now_ms + 20_000, strike)


def fault_of_a_node(world: World) -> None:
    """Something goes wrong with some node, unless its network is away already."""
    node = world.nodes[world.rng.choice(sorted(world.nodes))]
    if not node.cut:
        _one(world, node)


def _one(world: World, node: Any) -> None:
    rng = world.rng
    keep = rng.random() < 0.5
    acts: list[Callable[[], None]] = [
        lambda: node.restart(keep=keep),
        node.reboot,
        lambda: _outage(world, node, keep=keep, told=False),
        lambda: _outage(world, node, keep=keep, told=True),
        lambda: _outage(world, node, keep=keep, told=True),
        lambda: node.notice(rng.choice([4, 10, 30])),
        lambda: world.degrades(node),
    ]
    rng.choice(acts)()


def _outage(world: World, node: Any, *, keep: bool, told: bool) -> None:
    """The network of a node is away; `told`: long enough for a detector to say that it is lost. It may be rebooted meanwhile."""
    node.cut = True
    back_ms = world.now_ms + world.rng.randrange(2_000, 40_000)
    if told:
        boot, registration = node.boot, node.verdict()
        world.at((world.now_ms + back_ms) // 2, lambda: world.arrives(registration) if node.cut and node.boot == boot else None)
    rebooted = world.rng.random() < 0.2
    world.at(back_ms, lambda: (node.reboot() if rebooted else node.mend(keep=keep)) if node.cut else None)


def heal(world: World) -> None:
    """Faults stop: every node is there and open, and no quota keeps a gang for ever that came before the quota did."""
    world.faulty = False
    if any(t.limit for t in world.folded.state.book.policy("default").teams):
        world.ask(PolicyChanged.model_validate({"pool": "default", "policy": OURS | {"teams": [], "name": "free"}, "user": "ada"}))
    for node in world.nodes.values():
        if node.cut:
            node.mend()
        world.ask(UncordonNode.model_validate({"pool": node.pool, "node_id": node.name}))
    for late_ms in range(0, REVIEWED_WITHIN_MS, 30_000):
        world.at(world.now_ms + late_ms, lambda: _end_reviews(world))


def _end_reviews(world: World) -> None:
    """Somebody lets go on what is under review."""
    for job_id, job in sorted(world.folded.state.jobs.items()):
        if isinstance(job.phase, UnderReview):
            world.ask(review(job_id, ReviewAction.GO_ON))


def simulate(seed: int, jobs: int = 40, world: World | None = None) -> World:
    """A whole simulation: `FAULTS_MS` of faults, then peace until every job has ended."""
    world = world or World(seed)
    fleet(world)
    world.ask(policy_event(["ours", "backfill", "fair", "eager", "ours", "fifo"][seed % 6]))
    world.own(300, 3_000)
    people(world, jobs, 20_000)
    faults(world, 40_000)
    world.go(world.now_ms + FAULTS_MS)
    heal(world)
    world.go(world.now_ms + HEALED_WITHIN_MS, stop_when_idle=True)
    return world
