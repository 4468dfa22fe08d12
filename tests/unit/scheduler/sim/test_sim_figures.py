"""Published figures: three independent simulators agree on them, so whoever obeys their rule must print the same digits."""

from pathlib import Path

import pytest

from trainhouse.scheduler.policies import load
from trainhouse.scheduler.sim.fleet_file import read_fleet
from trainhouse.scheduler.sim.loop import simulate
from trainhouse.scheduler.sim.summary import summarize
from trainhouse.scheduler.sim.trace import Selection, read_trace
from trainhouse.scheduler.sim.types import Options

TRACES = Path(__file__).parents[5] / "shared" / "traces"
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="the public traces are not beside this checkout")

FIFO, SHORTEST = "strict-consolidate", "strict-consolidate-shortest"


@pytest.mark.parametrize(("name", "jct_s", "wait_s"), [(FIFO, "16,534.27", "10,883.49"), (SHORTEST, "6,272.79", "622.02")])
def test_venus_to_the_printed_digit(name: str, jct_s: str, wait_s: str) -> None:
    jobs = read_trace(TRACES / "helios_venus_sept.csv.gz").jobs
    nodes = read_fleet(str(TRACES / "helios_venus_nodes.csv")).nodes
    summary = summarize(simulate(jobs, nodes, load(name), options=Options(one_pool=False)))
    assert (summary.finished, summary.refused) == (1867, 0)
    assert f"{summary.times.mean_jct_s:,.2f}" == jct_s
    assert f"{summary.times.mean_wait_s:,.2f}" == wait_s


@pytest.mark.parametrize(
    ("name", "jct_s", "wait_s", "p99_s"),
    [(FIFO, "31,082.10", "19,601.70", "147,636"), (SHORTEST, "13,254.79", "1,774.38", "26,304")],
)
def test_philly_october_and_november_to_the_printed_digit(name: str, jct_s: str, wait_s: str, p99_s: str) -> None:
    jobs = read_trace(TRACES / "philly.csv.gz", Selection(2_332_800, 7_603_200)).jobs
    assert len(jobs) == 68_510
    result = simulate(jobs, read_fleet("80x8").nodes, load(name), options=Options(segments=False))
    summary = summarize(result)
    assert summary.finished == 68_510
    assert f"{summary.times.mean_jct_s:,.2f}" == jct_s
    assert f"{summary.times.mean_wait_s:,.2f}" == wait_s
    assert f"{summary.times.p99_wait_s:,.0f}" == p99_s
    assert summary.makespan_s == 6_469_551
