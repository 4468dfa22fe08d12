"""What one scheduling cycle costs on a full fleet: 500 gangs run, 5,000 gangs of 1..512 wait, and a few come and go before each cycle.

The core alone, on a book, with backfill over everything that waits; then after 100,000 nodes more came, were lost and were forgotten; then
ten times the fleet. The policy is ours without preemption, and
plain EASY backfill. Times are of the processor, so that neighbours on the machine do not count; the wall time is beside them.
"""

import gc
import random
import time

from tests.bench import report
from tests.support.shapes import simple
from trainhouse.events.model.policy import Blocking, Elastic, Order, Packing, Preemption, RunTimes, SchedulingPolicy
from trainhouse.scheduler.core.cluster.node_slots import NodeSlots
from trainhouse.scheduler.core.cluster.place import place
from trainhouse.scheduler.core.cycle.apply_actions import apply
from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.cycle import run_cycle
from trainhouse.scheduler.core.queue.entries import Start, Waiting
from trainhouse.scheduler.policies import load

POOL, GPUS, TEAMS, WAITING = "main", 8, 20, 5000
ROUNDS = 300
NAMES, GONE_AT_ONCE = 100_000, 50
MINUTE_MS = 60_000
SLURM = "reported, not run here: Slurm 22.05 at this size, main cycle 9-11 ms mean, backfill 5.3 s for 173 jobs, 48 s for 917"


class Stage:
    """A fleet with running and waiting gangs."""

    def __init__(self, nodes: int, running: int, policy: SchedulingPolicy, seed: int = 7) -> None:
        self.random, self.book, self.now_ms, self.count = random.Random(seed), Book(), 0, 0
        for index in range(nodes):
            rack, pod = f"r{index // 16}", f"p{index // 128}"
            self.book.put_node(NodeSlots(index, f"n{index}", POOL, ("h100",) * GPUS, domains=(("rack", rack), ("pod", pod))))
        self.book.set_policy(POOL, policy, 0)
        self._fill(running)
        self.alive = sorted(self.book.running)
        while len(self.book.lanes) < WAITING:
            self.arrive()

    def _fill(self, running: int) -> None:
        """So many gangs on nearly all devices."""
        mean = self.book.cluster.free(POOL) / running
        sizes = [1, 2, 4, 8, 8, 16, 32, 64]
        for left in range(running, 0, -1):
            free = self.book.cluster.free(POOL)
            ranks = min(self.random.choice(sizes), free - left + 1) if left > running // 10 else max(1, round(free / left))
            job = self._job(max(1, min(ranks, round(4 * mean))))
            placement = place(self.book.cluster, job.shape, Packing.TOPOLOGY)
            assert placement is not None
            self.book.put_waiting(job)
            apply(self.book, Start(job.job_id, placement), self.now_ms)

    def _job(self, ranks: int) -> Waiting:
        self.count += 1
        team = f"t{self.random.randrange(TEAMS):02}"
        run_ms = MINUTE_MS * self.random.choice((5, 30, 60, 240, 720, 1440))
        shape = simple(POOL, ranks)
        return Waiting(f"j{self.count:07}", self.count, team, 50, shape, self.now_ms, self.now_ms, run_ms=run_ms, kin=(team,))

    def arrive(self) -> None:
        """One more gang waits: half of them small, the others of any size up to 512."""
        some = self.random
        self.book.put_waiting(self._job(some.randint(1, 16) if some.random() < 0.5 else some.randint(1, 512)))

    def end(self) -> None:
        """One of the running gangs ends."""
        at = self.random.randrange(len(self.alive))
        self.alive[at], self.alive[-1] = self.alive[-1], self.alive[at]
        running = self.book.running[self.alive.pop()]
        self.book.cluster.give(running.placement, running.job.shape)
        self.book.remove(running.job.job_id, self.now_ms)

    def turn_over(self, names: int) -> None:
        """So many nodes more come, are lost and are forgotten; each gets the index of one before it."""
        first = len(self.book.cluster.layout.slots)
        for number in range(names):
            index = first + number % GONE_AT_ONCE
            if number >= GONE_AT_ONCE:
                self.book.drop_node(index)
            self.book.put_node(NodeSlots(index, f"gone{number}", POOL, ("h100",) * GPUS, open=False))
        for index in range(first, len(self.book.cluster.layout.slots)):
            self.book.drop_node(index)

    def cycle(self) -> tuple[float, float, int]:
        """(processor seconds, wall seconds, starts) of one cycle."""
        cpu, wall = time.process_time(), time.perf_counter()
        actions = run_cycle(self.book, self.now_ms)
        took = time.process_time() - cpu, time.perf_counter() - wall
        started = [a.job_id for a in actions if isinstance(a, Start)]
        self.alive.extend(started)
        return *took, len(started)


def measure(nodes: int, running: int, policy: SchedulingPolicy, names: int = 0) -> dict[str, float]:
    """Milliseconds of cycles, each after three ends and as many arrivals as keep 5,000 waiting; `names` nodes came and went before."""
    stage = Stage(nodes, running, policy)
    stage.turn_over(names)
    _, first_s, _ = stage.cycle()
    cpu, wall, starts, fork = [], [], 0, []
    gc.collect()
    gc.freeze()
    for _ in range(ROUNDS):
        stage.now_ms += 1000
        for _ in range(min(3, len(stage.alive))):
            stage.end()
        while len(stage.book.lanes) < WAITING:
            stage.arrive()
        begun = time.process_time()
        stage.book.fork()
        fork.append(time.process_time() - begun)
        cpu_s, wall_s, count = stage.cycle()
        cpu.append(1000 * cpu_s)
        wall.append(1000 * wall_s)
        starts += count
    return {
        "p50_ms": report.percentile(cpu, 50),
        "p99_ms": report.percentile(cpu, 99),
        "wall_p50_ms": report.percentile(wall, 50),
        "wall_p99_ms": report.percentile(wall, 99),
        "fork_p50_ms": 1000 * report.percentile(fork, 50),
        "first_ms": 1000 * first_s,
        "starts": starts,
        "running": len(stage.book.running),
        "lanes": len(stage.book.lanes.of(POOL).heads),
    }


def policies() -> dict[str, SchedulingPolicy]:
    """Ours without preemption, and EASY backfill."""
    ours = load("trainhouse")
    off = {"preemption": Preemption(enabled=False), "elastic": Elastic(enabled=False)}
    easy = SchedulingPolicy(
        name="easy", order=Order.SUBMIT, blocking=Blocking.BACKFILL, run_times=RunTimes.LIMITS, elastic=Elastic(enabled=False)
    )
    return {"ours": ours.model_copy(update=off | {"defragmentation": replace_enabled(ours)}), "easy": easy}


def replace_enabled(policy: SchedulingPolicy) -> object:
    """Its defragmentation, switched off."""
    return policy.defragmentation.model_copy(update={"enabled": False})


def run() -> None:
    """Prints one line per policy and size of the fleet."""
    for name, policy in policies().items():
        base = measure(1250, 500, policy)
        report.line("decision_batch", policy=name, devices=10_000, waiting=WAITING, **base, aim_p99_ms=20, peer=SLURM)
        after = measure(1250, 500, policy, NAMES)
        growth = after["p99_ms"] / base["p99_ms"]
        report.line(
            "decision_batch", policy=name, devices=10_000, waiting=WAITING, **after, names=NAMES, growth=growth, aim_growth=1.2, peer=SLURM
        )
        large = measure(12_500, 5000, policy)
        growth = large["p99_ms"] / base["p99_ms"]
        report.line("decision_batch", policy=name, devices=100_000, waiting=WAITING, **large, growth=growth, aim_growth=5, peer=SLURM)
