"""Traces, fleets and faults from files: what is read, what is left out and counted, and how a bad cell is told."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.scheduler.sim.faults_file import merge, read_faults
from trainhouse.scheduler.sim.fleet_file import read_fleet
from trainhouse.scheduler.sim.table import FileError
from trainhouse.scheduler.sim.trace import Selection, read_trace
from trainhouse.scheduler.sim.types import Fault

HEADER = "job_id,tenant,submit_s,duration_s,gpus,status,gpu_type,priority"
SHARED = Path(__file__).parents[5] / "shared" / "traces"
shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the public traces are not beside this checkout")


def write(folder: Path, *lines: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def test_reads_plain_and_gzip_alike_whatever_the_name(tmp_path: Path) -> None:
    plain = write(tmp_path, HEADER, "a,red,5,60,8,,A|B,LS", "b,,5,1,1,,,", "c,blue,7,10,2,failed,,0")
    packed = tmp_path / "packed.csv"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_trace(plain).jobs == read_trace(packed).jobs
    first, second, third = read_trace(plain).jobs
    assert (first.tenant, first.gpu_type, first.priority, first.gpus) == ("red", "A|B", 20, 8)
    assert (second.tenant, second.priority, second.gpu_milli) == ("", 50, 1000)
    assert (third.priority, third.status) == (0, "failed")


def test_rows_are_sorted_by_time_and_ties_keep_the_order_of_the_file(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, HEADER, "a,,9,1,1,,,", "z,,5,1,1,,,", "b,,5,1,1,,,"))
    assert [j.job_id for j in trace.jobs] == ["z", "b", "a"]
    assert any("sorted" in n for n in trace.notes)


def test_jobs_without_gpu_or_run_time_are_left_out_and_counted(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, HEADER, "a,,1,1,0,,,", "b,,2,,1,,,", "c,,3,4,1,,,", "d,,3,4,0,,,"))
    assert [j.job_id for j in trace.jobs] == ["c"]
    assert trace.left_out == {"they ask for no GPU": 2, "they have no duration_s, so they never ran": 1}


def test_a_window_and_a_tenant_select(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER, "a,x,1,1,1,,,", "b,x,2,1,1,,,", "c,y,2,1,1,,,", "d,x,3,1,1,,,")
    assert [j.job_id for j in read_trace(path, Selection(2, 3)).jobs] == ["b", "c"]
    assert [j.job_id for j in read_trace(path, Selection(tenant="x")).jobs] == ["a", "b", "d"]
    with pytest.raises(FileError, match=r"no job is of tenant 'z'; there are x, y"):
        read_trace(path, Selection(tenant="z"))
    with pytest.raises(FileError, match="no job is left"):
        read_trace(path, Selection(from_s=99))


@pytest.mark.parametrize(
    ("row", "column", "told"),
    [
        ("b,,-1,1,1,,,", "submit_s", "'-1' is not allowed; allowed is a whole number from 0"),
        ("b,,1,-5,1,,,", "duration_s", "'-5'"),
        ("b,,1,1,1.5,,,", "gpus", "'1.5' is not allowed; allowed is a whole number from 0 to 65,536"),
        ("b,,1,1,-1,,,", "gpus", "'-1'"),
        ("b,,1,1,,,,", "gpus", "nothing is not allowed"),
        ("b,,soon,1,1,,,", "submit_s", "'soon'"),
        ("b,,1_0,1,1,,,", "submit_s", "'1_0'"),
        ("b,,1,1,1,,,urgent", "priority", "0 \\(the highest\\) to 100, nothing \\(50\\), or Guaranteed, LS, Burstable, BE"),
        ("b,,1,1,1,,,101", "priority", "'101'"),
        (",,1,1,1,,,", "job_id", "allowed is a name"),
        ("a,,1,1,1,,,", "job_id", "'a' is already the job of line 2"),
    ],
)
def test_a_bad_cell_is_told_with_file_line_column_and_value(tmp_path: Path, row: str, column: str, told: str) -> None:
    path = write(tmp_path, HEADER, "a,,1,1,1,,,", row)
    with pytest.raises(FileError, match=told) as caught:
        read_trace(path, Selection(from_s=10**9))
    assert (caught.value.line, caught.value.column) == (3, column)
    assert str(caught.value).startswith(f"{path}, line 3, column {column}: ")


def test_a_share_is_of_one_gpu(tmp_path: Path) -> None:
    head = HEADER + ",gpu_milli"
    assert read_trace(write(tmp_path, head, "a,,1,1,1,,,,470")).jobs[0].gpu_milli == 470
    with pytest.raises(FileError, match="gpus 1"):
        read_trace(write(tmp_path, head, "a,,1,1,2,,,,470"))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (("job_id,submit_s,gpus", "a,1,1"), "the column 'duration_s' is missing"),
        ((HEADER + ",gpus",), "'gpus' is named twice"),
        (("job_id,tennant,submit_s,duration_s,gpus", "a,x,1,1,1"), "did you mean 'tenant'"),
        ((HEADER, "a,,1,1"), "line 2: 4 cells, where the header names 8 columns"),
        (("",), "the file is empty"),
        ((HEADER,), "no job is left"),
        ((HEADER, 'a,"un,1,1,1,,,'), "no CSV"),
    ],
)
def test_a_bad_file_is_told(tmp_path: Path, lines: tuple[str, ...], told: str) -> None:
    with pytest.raises(FileError, match=told):
        read_trace(write(tmp_path, *lines))


def test_what_is_no_text_or_not_there_is_told(tmp_path: Path) -> None:
    binary = tmp_path / "b.csv"
    binary.write_bytes(HEADER.encode() + b"\n\xff\xfe\x00")
    with pytest.raises(FileError, match="not UTF-8"):
        read_trace(binary)
    with pytest.raises(FileError, match="No such file"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(FileError, match="directory"):
        read_trace(tmp_path)


@given(cut=st.integers(20, 900), flip=st.integers(12, 900))
def test_damaged_gzip_is_an_error_of_the_file_or_reads_the_same(tmp_path_factory: pytest.TempPathFactory, cut: int, flip: int) -> None:
    """A cut or a changed byte never gives other jobs in silence."""
    folder = tmp_path_factory.mktemp("gz")
    plain = write(folder, HEADER, *(f"j{n},t{n * 7919 % 13},{n * n},{n * 31 % 977},1,,," for n in range(300)))
    whole = read_trace(plain).jobs
    data = gzip.compress(plain.read_bytes())
    assert len(data) > 900
    for damaged in (data[:cut], data[:flip] + bytes([data[flip] ^ 0x55]) + data[flip + 1 :]):
        path = folder / "t.csv.gz"
        path.write_bytes(damaged)
        try:
            assert read_trace(path).jobs == whole
        except FileError as error:
            assert str(path) in str(error)


def test_fleets_in_words() -> None:
    fleet = read_fleet("80x8")
    assert (len(fleet.nodes), fleet.gpus, fleet.nodes[0].node_id, fleet.nodes[79].node_id) == (80, 640, "n00", "n79")
    mixed = read_fleet("2x8:V100, 1x4:A100")
    assert [(n.gpus, n.gpu_type) for n in mixed.nodes] == [(8, "V100"), (8, "V100"), (4, "A100")]
    for wrong in ("0x8", "8x0", "200000x8", "80x8x2", "eighty"):
        with pytest.raises(FileError):
            read_fleet(wrong)


def test_fleets_from_files(tmp_path: Path) -> None:
    path = write(tmp_path, "node_id,gpus,gpu_type,rack,switch,pool", "a,8,V100,r1,s1,p", "b,0,,,,", "c,4,,,,")
    fleet = read_fleet(str(path))
    assert [n.node_id for n in fleet.nodes] == ["a", "c"]
    assert (fleet.nodes[0].rack, fleet.nodes[0].pool) == ("r1", "p")
    assert fleet.notes == ("left out 1 nodes without a GPU",)
    pools = read_fleet(str(write(tmp_path, "pool,nodes,gpus_per_node", "x,2,8", "y,1,4", name="p.csv")))
    assert [(n.node_id, n.gpus, n.pool) for n in pools.nodes] == [("x-0", 8, "x"), ("x-1", 8, "x"), ("y-0", 4, "y")]


def test_bad_node_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="line 3, column node_id: 'a' is already the node of line 2"):
        read_fleet(str(write(tmp_path, "node_id,gpus", "a,8", "a,8")))
    silent = str(write(tmp_path, "node_id,gpus", "a,"))
    with pytest.raises(FileError, match="--gpus-per-node"):
        read_fleet(silent)
    assert read_fleet(silent, 4).gpus == 4
    with pytest.raises(FileError, match="no node has a GPU"):
        read_fleet(str(write(tmp_path, "node_id,gpus", "a,0")))


def test_faults_of_named_nodes_merge(tmp_path: Path) -> None:
    path = write(tmp_path, "time_s,node_id,repaired_s", "5,n1,9", "7,n1,20", "20,n1,21", "30,n1,", "40,n1,50", "6,n0,6")
    found = read_faults(path, read_fleet("4x8").nodes[:2], shift_s=100)
    assert [(f.time_s, f.node_id, f.repaired_s) for f in found.faults] == [(105, "n1", 121), (130, "n1", None)]
    assert any("left out 1 faults" in n for n in found.notes)


def test_faults_of_another_cluster_keep_their_rate(tmp_path: Path) -> None:
    rows = [f"{10 * k},s{k:03},{10 * k + 5}" for k in range(10)]
    path = write(tmp_path, "time_s,node_id,repaired_s", *rows)
    found = read_faults(path, read_fleet("10x8").nodes, servers=40)
    assert [f.node_id for f in found.faults] == ["n0", "n4", "n8"]
    assert any("7 faults of servers beyond the fleet" in n for n in found.notes)
    with pytest.raises(FileError, match="names 10 servers"):
        read_faults(path, read_fleet("10x8").nodes, servers=9)


def test_faults_of_half_known_nodes_or_backward_times_are_refused(tmp_path: Path) -> None:
    nodes = read_fleet("2x8").nodes
    with pytest.raises(FileError, match="not 'n7'"):
        read_faults(write(tmp_path, "time_s,node_id,repaired_s", "1,n0,2", "1,n7,2"), nodes)
    with pytest.raises(FileError, match="line 2, column repaired_s: '4' is not allowed"):
        read_faults(write(tmp_path, "time_s,node_id,repaired_s", "5,n0,4"), nodes)


spans = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.one_of(st.none(), st.integers(1, 9))), max_size=12)


@given(spans)
def test_merged_faults_close_the_same_seconds_and_never_overlap(spans: list[tuple[str, int, int | None]]) -> None:
    faults = [Fault(at, node, "", None if length is None else at + length) for node, at, length in spans]
    merged = merge(faults)
    for node in "ab":
        for second in range(45):
            inside = [f.node_id == node and f.time_s <= second and (f.repaired_s is None or second < f.repaired_s) for f in merged]
            assert sum(inside) <= 1
            before = [f.node_id == node and f.time_s <= second and (f.repaired_s is None or second < f.repaired_s) for f in faults]
            assert any(inside) == any(before)


@shared
def test_the_public_traces_read_as_their_page_says() -> None:
    assert len(read_trace(SHARED / "philly.csv.gz", Selection(2_332_800, 7_603_200)).jobs) == 68_510
    openb = read_trace(SHARED / "openb_tasks.csv.gz")
    assert openb.left_out["they ask for no GPU"] == 1_088
    assert len(openb.jobs) + sum(openb.left_out.values()) == 8_152
    assert len(read_trace(SHARED / "helios_venus_sept.csv.gz").jobs) == 1_867
    assert read_fleet(str(SHARED / "openb_nodes.csv.gz")).gpus == 6_212
    assert len(read_fleet(str(SHARED / "helios_venus_nodes.csv")).nodes) == 22
    assert read_fleet(str(SHARED / "lingjun_topology.csv.gz"), 8).nodes[0].pod == "P10"
    with pytest.raises(FileError, match="--gpus-per-node"):
        read_fleet(str(SHARED / "lingjun_topology.csv.gz"))
    faults = read_faults(SHARED / "infinitehbd_faults.csv.gz", read_fleet("400x8").nodes)
    assert 300 < len(faults.faults) <= 381
