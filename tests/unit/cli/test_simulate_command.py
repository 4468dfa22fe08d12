"""`trainhouse simulate` on tiny traces: its table, its JSON, its files, and its errors."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from trainhouse.cli.main import build
from trainhouse.cli.shared import exit_codes

HEADER = "job_id,tenant,submit_s,duration_s,gpus,status,gpu_type,priority"
FIFO = "name: plain\norder: submit\nblocking: strict\nrun_times: limits\n"
SHORT = "name: short\norder: shortest\nblocking: strict\nrun_times: 'true'\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    rows = ["a,x,0,100,8,,,", "b,y,1,100,8,,,", "c,x,2,10,8,,,", "d,y,3,5,64,,,"]
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    (tmp_path / "fifo.yaml").write_text(FIFO)
    (tmp_path / "short.yaml").write_text(SHORT)
    return path


def run(*arguments: str | Path) -> tuple[int, str, str]:
    found = CliRunner().invoke(build(), ["simulate", *map(str, arguments)])
    if isinstance(found.exception, exit_codes.CliError):
        return int(found.exception.code), found.stdout, str(found.exception)
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.stdout, found.stderr


def test_policies_are_compared_and_what_can_never_run_is_refused(trace: Path) -> None:
    here = trace.parent
    options = ("--trace", trace, "--nodes", "1x8", "--policy", here / "fifo.yaml", "--policy", here / "short.yaml")
    code, out, remarks = run(*options, "--json")
    assert code == 0
    plain, short = [json.loads(line) for line in out.splitlines()]
    assert (plain["policy"], plain["jobs"], plain["finished"], plain["refused"]) == ("plain", 4, 3, 1)
    assert plain["mean_wait_s"] == pytest.approx((0 + 99 + 198) / 3)
    assert short["mean_wait_s"] == pytest.approx((0 + 109 + 98) / 3)
    assert plain["makespan_s"] == 210 and plain["utilization"] == 1
    assert plain["fairness"]["worst_wait_tenant"] in ("x", "y")
    assert "refused 1 job: asks for 64 devices" in remarks and "8 in all" in remarks
    code, out, _ = run(*options)
    assert code == 0 and "plain" in out and "short" in out and "mean JCT s" in out


def test_a_folder_gets_summary_parquet_and_plots(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "study"
    options = ("--trace", trace, "--nodes", "1x8", "--policy", trace.parent / "fifo.yaml", "--out", out)
    code, _, remarks = run(*options)
    assert code == 0 and "wrote" in remarks
    summary = json.loads((out / "summary.json").read_text())
    assert summary["policies"]["plain"]["p99_wait_s"] == pytest.approx(196.02)
    assert summary["about"]["trace"] == "trace.csv" and str(tmp_path) not in (out / "summary.json").read_text()
    assert pq.read_table(out / "jobs.parquet").num_rows == 4
    names = {p.name for p in out.iterdir()}
    assert {"utilization.png", "queue.svg", "waits_by_gang_size.png", "gantt_plain.png"} <= names
    bare = tmp_path / "bare"
    assert run(*options[:-1], bare, "--no-plots")[0] == 0
    assert {p.name for p in bare.iterdir()} == {"summary.json", "jobs.parquet"}


def test_the_same_policy_twice_gets_two_names(trace: Path) -> None:
    here = trace.parent
    (here / "other.yaml").write_text(FIFO)
    code, out, _ = run(
        *("--trace", trace, "--nodes", "1x8", "--json"),
        *("--policy", here / "fifo.yaml", "--policy", here / "other.yaml", "--policy", here / "fifo.yaml"),
    )
    assert code == 0
    assert [json.loads(line)["policy"] for line in out.splitlines()] == ["plain", "other", "fifo"]


def test_tenants_stay_in_their_pools(trace: Path) -> None:
    nodes = trace.parent / "nodes.csv"
    nodes.write_text("node_id,gpus,pool\nn0,8,x\nn1,8,y\n")
    options = ("--trace", trace, "--nodes", nodes, "--policy", trace.parent / "fifo.yaml", "--json")
    apart = json.loads(run(*options, "--pools", "tenant")[1])
    assert apart["fairness"]["tenants"]["x"]["mean_wait_s"] == pytest.approx(98 / 2)
    assert apart["fairness"]["tenants"]["y"]["mean_wait_s"] == 0


def test_faults_cost_work(trace: Path) -> None:
    faults = trace.parent / "faults.csv"
    faults.write_text("time_s,node_id,repaired_s\n50,n0,60\n55,n0,70\n")
    options = ("--trace", trace, "--nodes", "1x8", "--policy", trace.parent / "fifo.yaml", "--json")
    code, out, remarks = run(*options, "--faults", faults, "--restart-cost", "5")
    found = json.loads(out)
    assert code == 0 and "overlap" in remarks
    assert found["lost_gpu_s"] == found["lost_to_faults_gpu_s"] == 8 * (50 + 5)


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--nodes", "1x8", "--run-times", "maybe"), 2, "true, limits, history"),
        (("--nodes", "1x8", "--pools", "three"), 2, "one (all nodes for all)"),
        (("--nodes", "nowhere.csv"), 2, "is no file"),
        (("--nodes", "1x8", "--policy", "fastest"), 2, "those are"),
        (("--nodes", "1x8", "--policy", "none.yaml"), 66, "none.yaml"),
        (("--nodes", "1x8", "--tenant", "z"), 2, "there are x, y"),
    ],
)
def test_wrong_options_are_told(trace: Path, options: tuple[str, ...], code: int, told: str) -> None:
    found, _, message = run("--trace", trace, *options)
    assert found == code and told in message


def test_a_policy_that_the_fleet_cannot_obey_is_refused_with_its_line(trace: Path) -> None:
    policy = trace.parent / "typed.yaml"
    policy.write_text("name: typed\nteams:\n  - name: x\n    limit: {H800: 4}\n")
    code, _, message = run("--trace", trace, "--nodes", "1x8:V100", "--policy", policy)
    assert code == 2 and "typed.yaml:4" in message and "H800" in message


def test_no_folder_is_made_for_bad_input(trace: Path, tmp_path: Path) -> None:
    trace.write_text(HEADER + "\na,,1,1,many,,,\n")
    code, _, message = run("--trace", trace, "--nodes", "1x8", "--out", tmp_path / "out")
    assert code == 2 and "line 2, column gpus: 'many'" in message
    assert not (tmp_path / "out").exists()
