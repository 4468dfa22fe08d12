"""What the failure detector costs and how right it is, beside a fixed timeout on the same heartbeats.

Cost: heartbeats of 12,500 nodes x 8 ranks from bytes to verdicts in one process, and the share of a processor at one heartbeat per 10 s.
Truth: an emulated hour with jitter, loss, paused and restarted detectors, brokers away, restarted agents, stalled machines and clocks that
jump; some gangs hang and some nodes die. Times are of the processor for cost, and virtual for the hour. TRAINHOUSE_BENCH_SEED changes it.
"""

import gc
import os
import random
import statistics
import time
from collections.abc import Iterator

from tests.bench import report
from tests.bench.detector_fleet import EPOCH_MS, EmulatedNode, fleet
from tests.bench.detector_hour import TICK_MS, Hour
from trainhouse.events import NodeHeartbeat, decode, encode, envelope_of
from trainhouse.scheduler.core.detector import DetectorMachine, DetectorState

SEED = int(os.environ.get("TRAINHOUSE_BENCH_SEED", "1"))
NODES, RANKS = 12_500, 8
ROUNDS = 4


def run() -> None:
    """Prints a line for the cost, and one for each emulated hour."""
    _cost()
    _hour("detector_hour_at_1_s", fleet(SEED, 125, 4, 1_000), hangs=0.3)
    _hour("detector_hour_at_10_s", fleet(SEED, 1_250, 4, 10_000), hangs=0.08)


def _cost() -> None:
    machine, state = DetectorMachine(), DetectorState()
    nodes = fleet(SEED, NODES, RANKS, 10_000)
    spent_s, size, said = 0.0, 0, 0
    gc.collect()
    for number in range(ROUNDS):
        for batch in _batches(nodes, EPOCH_MS + 10_000 * (number + 1)):
            size += sum(map(len, batch))
            begin_s = time.process_time()
            for value in batch:
                beat = decode(value).event
                assert isinstance(beat, NodeHeartbeat)
                said += len(machine.on_heartbeat(state, beat, beat.at_ms))
            spent_s += time.process_time() - begin_s
    begin_s = time.process_time()
    for number in range(20):
        machine.tick(state, EPOCH_MS + TICK_MS * number, True)
    tick_s = (time.process_time() - begin_s) / 20
    each_s = spent_s / (ROUNDS * NODES)
    report.line(
        "detector_heartbeats_per_s",
        value=1 / each_s,
        ranks_each=RANKS,
        bytes_each=size / (ROUNDS * NODES),
        verdicts=said,
        tick_ms=1000 * tick_s,
        cpu_share_12500_nodes_per_10_s=each_s * NODES / 10 + tick_s * 1000 / TICK_MS,
    )


def _batches(nodes: list[EmulatedNode], at_ms: int) -> Iterator[list[bytes]]:
    for begin in range(0, len(nodes), 500):
        some = nodes[begin : begin + 500]
        yield [encode(envelope_of(n.beat(at_ms), id=f"{n.name}:{n.sequence}", source="bench", now_ms=at_ms)) for n in some]


def _hour(figure: str, nodes: list[EmulatedNode], hangs: float) -> None:
    hour = Hour(nodes, random.Random(SEED), hangs)
    hour.run()
    found = [h for number, h in hour.found.items() if number >= 0]
    late_beats = [h["late_beats"] for h in found if "late_beats" in h]
    by_rhythm = [h["ours_s"] / h["p99_s"] for h in found if h["stopped"] and 2.99 < h.get("limit_s", 0) / h["p99_s"] < 3.01]
    deaths = [h for number, h in hour.found.items() if number < 0]
    report.line(
        figure,
        false_positives=sum(hour.false.values()),
        aim=0,
        false=dict(hour.false),
        peer="fixed: 15 intervals of silence, 30 s without a step",
        peer_false_positives=sum(hour.fixed_false.values()),
        peer_false=dict(hour.fixed_false),
        seed=SEED,
        nodes=len(nodes),
        heartbeats=hour.beats,
        suspicions=hour.suspicions,
        disturbed=dict(sorted(hour.done.items())),
        stopped_found_s=_middle_and_worst([h["ours_s"] for h in found if "ours_s" in h and h["stopped"]]),
        live_hang_found_s=_middle_and_worst([h["ours_s"] for h in found if "ours_s" in h and not h["stopped"]]),
        peer_hang_found_s=_middle_and_worst([h["fixed_s"] for h in found if "fixed_s" in h]),
        stopped_found_in_p99_steps_where_they_set_the_limit=_middle_and_worst(by_rhythm),
        heartbeats_after_the_limit=_middle_and_worst(late_beats),
        right_ranks_share=statistics.fmean([h["right_ranks"] for h in found if "right_ranks" in h] or [0.0]),
        deaths_found_s=_middle_and_worst([d["ours_s"] for d in deaths if "ours_s" in d]),
        peer_deaths_found_s=_middle_and_worst([d["fixed_s"] for d in deaths if "fixed_s" in d]),
    )


def _middle_and_worst(values: list[float]) -> dict[str, float]:
    return {"n": len(values)} | ({"p50": statistics.median(values), "worst": max(values)} if values else {})
