"""A whole campaign: an undisturbed run, disturbed ones with the same spec beside jobs of other kinds, and the verdict over all of them.

Holds: the disturbed runs must end with the undisturbed one's weights, bit for bit; every job must end as its kind says once all is healed;
every rule of the judge must hold.
"""

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.chaos import judge, judge_bounds, judge_journal, judge_store
from tests.chaos.drive import Done, Driver, Training
from tests.chaos.evidence import Evidence, gather, stored
from tests.chaos.faults import Fault
from tests.chaos.hands import Hands
from tests.chaos.jobs import COMPANIONS, MUST_END, Asked, JobKind, spec_of
from tests.chaos.sizes import Sizes
from tests.chaos.stack import ChaosStack
from trainhouse.events import JobStatus, LogLines
from trainhouse.events.wire import topics
from trainhouse.projections.ingest.lanes import BEATS, FACTS, OF_RANKS, REPORTS

WEIGHTS = re.compile(r"weights sha256 ([0-9a-f]{64})")
Points = dict[tuple[str, int, int, str], int]
EVENTS = frozenset(topic for lane in (FACTS, OF_RANKS, REPORTS, BEATS) for topic, functions in lane.items() if functions)
SETTLE_S = 300.0
END_S = 900.0


@dataclass
class Verdict:
    """What was done and what the judge says."""

    done: list[Done] = field(default_factory=list)
    jobs: list[Asked] = field(default_factory=list)
    weights: dict[str, str] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    wall_s: float = 0.0
    missed: list[str] = field(default_factory=list)
    sent: int = 0
    unreadable: int = 0
    refused: int = 0
    journal_bytes_a_day: float = 0.0
    peaks: dict[str, int] = field(default_factory=dict)


@dataclass
class Campaign:
    """One campaign on a running stack. `say` is told what is done as it is done."""

    stack: ChaosStack
    steps: int
    name: str = "chaos"
    say: Callable[[str], None] = print
    verdict: Verdict = field(default_factory=Verdict)

    def run(self, plan: list[list[Fault]]) -> Verdict:
        """Carries the plan out, round by round. Blocks for minutes."""
        begin = time.monotonic()
        hands, sizes = Hands(self.stack), Sizes(self.stack)
        try:
            for number, faults in enumerate([[], *plan]):
                self._round(number, faults, hands)
        finally:
            hands.heal()
        self._measured(hands, sizes)
        before = self.stack.poke()
        evidence = self._settled(before)
        self._said("the evidence is gathered")
        examples = [asked.job_id for asked in self.verdict.jobs if asked.kind is JobKind.EXAMPLE]
        self.verdict.weights = {job: found for job in examples if (found := last_weights(evidence, job))}
        self.verdict.complaints += list(_complaints(self.stack, evidence, self.verdict.weights, examples))
        self.verdict.complaints += judge_bounds.every_partition_decides(evidence, before)
        self.verdict.complaints += judge_bounds.bounded(self.verdict.journal_bytes_a_day, self.verdict.peaks)
        self.verdict.wall_s = time.monotonic() - begin
        return self.verdict

    def _round(self, number: int, faults: list[Fault], hands: Hands) -> None:
        """The example under these faults, with a companion of another kind; then everything is healed, and all must end."""
        example = Asked(f"{self.name}-{number}", JobKind.EXAMPLE)
        asked = [example]
        if number:
            asked.append(Asked(f"{example.job_id}-beside", COMPANIONS[number % len(COMPANIONS)]))
        for each in asked:
            self.stack.submit(each.job_id, spec_of(each.kind, self.steps))
        self.verdict.jobs += asked
        training = Training(self.stack.attempts, example.job_id)
        driver = Driver(hands, training, self.stack.pid, self.stack.ended(example.job_id), self._said)
        try:
            driver.carry_out(faults)
        except TimeoutError as stuck:
            self.verdict.complaints.append(str(stuck))
        self.verdict.done += driver.done
        for each in asked:
            if each.kind is JobKind.CANCELLED:
                self.stack.cancel(each.job_id)
        hands.settle()
        blind = all(done.fault.blinds for done in driver.done)
        for each in asked:
            self._must_end(each, needless=blind)
            self._said(f"{each.job_id} ({each.kind}) has been waited for")

    def _said(self, what: str) -> None:
        self.say(f"{time.strftime('%H:%M:%S')} {what}")

    def _must_end(self, asked: Asked, needless: bool) -> None:
        """As its kind says; `needless`: nothing happened that could be a reason to restart it."""
        try:
            status = self.stack.wait(asked.job_id, END_S)
        except TimeoutError as late:
            self.verdict.complaints.append(f"{asked.job_id} ({asked.kind}): {late}")
            return
        self.verdict.complaints += ended_as_it_must(asked, status, needless)

    def _measured(self, hands: Hands, sizes: Sizes) -> None:
        sizes.end()
        verdict, outsiders = self.verdict, self.stack.outsiders
        verdict.journal_bytes_a_day, verdict.peaks = sizes.journal_bytes_a_day(), dict(sizes.peaks)
        verdict.missed, verdict.refused = hands.missed, outsiders.refused
        verdict.sent, verdict.unreadable = len(outsiders.sent), sum(not one.readable for one in outsiders.sent)

    def _settled(self, before: dict[tuple[str, int], int]) -> Evidence:
        """The evidence once logs and metrics have stopped coming: the judge's file rules hold, or the time to settle is over."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            evidence = gather(self.stack.patient, self.stack.kafka.partitions)
            whole = not any(_files(self.stack, evidence)) and not any(judge_journal.inputs_once(evidence))
            whole = whole and not any(judge_bounds.every_partition_decides(evidence, before))
            if whole or time.monotonic() > deadline:
                evidence.stored = stored(self.stack.objects())
                return evidence
            time.sleep(1.0)


def run(stack: ChaosStack, plan: list[list[Fault]], steps: int) -> Verdict:
    """A campaign with the usual jobs. Blocks for minutes."""
    return Campaign(stack, steps).run(plan)


def _files(stack: ChaosStack, evidence: Evidence) -> Iterable[str]:
    if not any(map(judge.spooling, stack.attempts)):
        yield f"no rank has a spool below {', '.join(map(str, stack.attempts))}: nothing could be compared"
    for attempts in stack.attempts:
        yield from judge.spools_whole(evidence, attempts)
        yield from judge.logs_whole(evidence, attempts)


def ended_as_it_must(asked: Asked, status: JobStatus, needless: bool) -> Iterable[str]:
    """A final status is that of the job's kind; `needless`: nothing happened that could be a reason to restart it."""
    if status.state is not MUST_END[asked.kind]:
        told = f"ended {status.state}, a job of its kind must end {MUST_END[asked.kind]}: {status.reason}"
        yield f"{asked.job_id} ({asked.kind}) {told}"
    if needless and asked.kind is JobKind.EXAMPLE and status.attempt != 0:
        told = "was restarted, though nothing befell its ranks, their agents or the store (blindness is not death)"
        yield f"{asked.job_id} {told}: attempt {int(status.attempt or 0)}, {status.reason}"


def same_weights(weights: dict[str, str], examples: list[str]) -> Iterable[str]:
    """Every example ends with the weights of the first one, which nothing disturbed."""
    calm = weights.get(examples[0])
    for job in examples:
        if weights.get(job) is None or weights[job] != calm:
            yield f"{job} ended with weights {weights.get(job)}, undisturbed they are {calm}"


def _complaints(stack: ChaosStack, evidence: Evidence, weights: dict[str, str], examples: list[str]) -> Iterable[str]:
    yield from same_weights(weights, examples)
    yield from judge.final_states(evidence)
    yield from judge.effects_once(evidence)
    yield from _files(stack, evidence)
    yield from judge.steps_without_gap(evidence, examples)
    yield from judge.commits_agree(evidence)
    yield from judge_journal.one_chain(evidence)
    yield from judge_journal.inputs_once(evidence)
    yield from judge_journal.one_gang_per_device(evidence)
    yield from judge_journal.stale_progress_is_ignored(evidence)
    yield from judge_store.one_committer(evidence)
    yield from judge_store.epochs_were_allocated(evidence)
    yield from judge_store.checkpoints_whole(evidence)
    yield from judge_bounds.answered(evidence, stack.outsiders.sent)
    yield from _sql_agrees(stack, evidence)
    yield from _sql_shows(stack)
    replay = stack.live.run("replay", "--verify")
    if replay.code != 0:
        yield f"replay --verify: {replay.code}: {replay.out[-1000:]}{replay.err[-1000:]}"


def _sql_agrees(stack: ChaosStack, evidence: Evidence) -> Iterable[str]:
    """Rows of step_metrics, rank by rank, are as many as the different points of the topic; jobs say what the status topic says."""
    expected = judge.points_per_rank(evidence)
    deadline = time.monotonic() + SETTLE_S
    while True:
        rows = stack.rows("SELECT job_id, epoch, rank, metric, count() AS points FROM step_metrics GROUP BY job_id, epoch, rank, metric")
        found = {(r["job_id"], int(r["epoch"]), int(r["rank"]), r["metric"]): int(r["points"]) for r in rows}
        states = {r["job_id"]: r["state"] for r in stack.rows("SELECT job_id, state FROM jobs WHERE job_id != ''")}
        # What was refused may have named no job; and where it did, its refusal stands under the event's id.
        said = {str(status.job_id): str(status.state) for status in stack.statuses().values() if status.job_id is not None}
        if (found == expected and states == said) or time.monotonic() > deadline:
            break
        time.sleep(1.0)
    yield from sql_differs(found, expected, states, said)


def _sql_shows(stack: ChaosStack) -> Iterable[str]:
    """Every record of an outsider's that cannot be read is a dead letter in SQL, if the projector reads its topic."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        rows = stack.rows("SELECT topic, partition, offset FROM dead_letters")
        letters = {(r["topic"], int(r["partition"]), int(r["offset"])) for r in rows}
        complaints = list(judge_bounds.shown(letters, stack.outsiders.sent, EVENTS))
        if not complaints or time.monotonic() > deadline:
            return complaints
        time.sleep(1.0)


def sql_differs(found: Points, expected: Points, states: dict[str, str], said: dict[str, str]) -> Iterable[str]:
    """SQL has as many points as the topic, and says of each job what its status says."""
    for key in sorted(set(expected) | set(found)):
        if expected.get(key) != found.get(key):
            yield f"SQL has {found.get(key)} points of {key}, the topic {expected.get(key)}"
    for job_id in sorted(set(states) | set(said)):
        if states.get(job_id) != said.get(job_id):
            yield f"SQL says that {job_id} is {states.get(job_id)}, its status {said.get(job_id)}"


def last_weights(evidence: Evidence, job_id: str) -> str | None:
    """What the job printed last about its weights."""
    found = None
    for record in evidence.of(topics.LOGS, LogLines):
        event = record.envelope.event
        if isinstance(event, LogLines) and event.job_id == job_id:
            for text in event.lines:
                match = WEIGHTS.search(text)
                found = match.group(1) if match else found
    return found
