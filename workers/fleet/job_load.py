"""Jobs for a fleet: mixed sizes at a steady rate, through the public topic as any client's.

Holds: job `i` of a load is the same job in every run of it; a load that falls behind its rate catches up.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from trainhouse.events import GangAllocated, JobId, JobSpec, JobSubmitted, PoolName, Runtime, envelope_of
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.model.spec import Gang, Resources
from trainhouse.events.wire.topics import JOBS
from trainhouse.workers.fleet.errors import InvalidPlanError
from trainhouse.workers.fleet.seeded_random import draw

# Ranks and how often, of a busy training cluster: most jobs are small, most devices belong to large ones.
MIXED = "1:50,2:12,4:10,8:12,16:7,32:4,64:3,128:1.2,256:0.6,512:0.2"
TEAMS = 12
SOURCE = "trainhouse/fleet-load"
MAX_A_TURN = 200


@dataclass(frozen=True)
class Sizes:
    """Sizes of jobs in ranks, with their weights: `ranks:weight,…`."""

    ranks: tuple[int, ...]
    weights: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> "Sizes":
        """Raises InvalidPlanError."""
        pairs = [p.partition(":") for p in text.split(",") if p.strip()]
        try:
            ranks, weights = tuple(int(p[0]) for p in pairs), tuple(float(p[2] or 1) for p in pairs)
            if not ranks or min(ranks) < 1 or min(weights) <= 0:
                raise ValueError("ranks and weights are above 0")
        except ValueError as error:
            raise InvalidPlanError(f"sizes {text!r}: {error}; write ranks:weight,… such as {MIXED}") from error
        return cls(ranks, weights)

    def at_most(self, devices: int) -> "Sizes":
        """Without those that `devices` could never hold. Raises InvalidPlanError when none is left."""
        kept = [(r, w) for r, w in zip(self.ranks, self.weights, strict=True) if r <= devices]
        if not kept:
            raise InvalidPlanError(f"every size is above the {devices} devices of the fleet: give smaller ones by --sizes")
        return Sizes(tuple(r for r, _ in kept), tuple(w for _, w in kept))

    def of(self, seed: int, number: int) -> int:
        """The size of one job."""
        at = draw(seed, "size", number) * sum(self.weights)
        for ranks, weight in zip(self.ranks, self.weights, strict=True):
            at -= weight
            if at < 0:
                return ranks
        return self.ranks[-1]


@dataclass(frozen=True)
class LoadPlan:
    """`count` jobs at `per_s`, of a pool; `name` begins their ids."""

    name: str
    pool: str
    per_s: float
    count: int
    sizes: Sizes
    device_type: str = "any"
    seed: int = 0

    def job(self, number: int) -> JobSubmitted:
        """Submission of job `number`."""
        ranks = self.sizes.of(self.seed, number)
        spec = JobSpec(
            name=f"{self.name}-{ranks}",
            team=f"team-{int(draw(self.seed, 'team', number) * TEAMS)}",
            user=self.name,
            pool=PoolName(self.pool),
            gang=Gang(ranks=ranks),
            resources=Resources(device_type=self.device_type),
            runtime=Runtime(command=("emulated",)),
        )
        return JobSubmitted(job_id=JobId(f"{self.name}-{number:06d}"), spec=spec)


@dataclass
class Load:
    """A load under way. `waits_ms`: from submission to reading the order, of each job that was given devices."""

    plan: LoadPlan
    producer: EventProducer
    began_ms: int | None = None
    sent: int = 0
    waits_ms: list[float] = field(default_factory=list)
    _open: dict[str, float] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """True if every job was submitted and has had its first devices."""
        return self.sent == self.plan.count and not self._open

    def next_ms(self) -> float | None:
        """Returns the time of the next job, in the clock of `pump`; None when all are sent."""
        if self.began_ms is None or self.sent >= self.plan.count:
            return None
        return self.began_ms + self.sent * 1000 / self.plan.per_s

    def pump(self, now_ms: float) -> None:
        """Submits what is due by now, MAX_A_TURN at most."""
        if self.began_ms is None:
            self.began_ms = int(now_ms)
        for number in self._due(now_ms):
            event = self.plan.job(number)
            self.sent += 1
            self._open[str(event.job_id)] = now_ms
            self.producer.send(JOBS, envelope_of(event, id=f"{event.job_id}-submitted", source=SOURCE, now_ms=int(now_ms)))

    def on_allocated(self, event: GangAllocated, now_ms: float) -> None:
        """An order was read."""
        sent_ms = self._open.pop(str(event.job_id), None)
        if sent_ms is not None:
            self.waits_ms.append(now_ms - sent_ms)

    def _due(self, now_ms: float) -> Iterator[int]:
        for _ in range(MAX_A_TURN):
            due_ms = self.next_ms()
            if due_ms is None or due_ms > now_ms:
                return
            yield self.sent
