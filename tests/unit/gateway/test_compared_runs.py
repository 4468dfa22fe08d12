"""Runs beside each other: names by what differs, parameters that appear once, what goes along with a metric, differing code."""

from __future__ import annotations

import gzip
import io
import math
import tarfile

import pytest

from trainhouse.gateway.runs import code_diff
from trainhouse.gateway.runs.code_diff import UnreadableArchiveError, differing_files, files_of
from trainhouse.gateway.runs.importance import LEAST_RUNS, importance
from trainhouse.gateway.runs.run_parameters import joined, parameters, typed
from trainhouse.run_names import MAX_NAME_CHARS, names_of


def test_runs_that_share_a_name_are_named_by_what_differs() -> None:
    points = {"a": {"lr": 0.1, "seed": 1}, "b": {"lr": 0.2, "seed": 1}, "c": {"lr": 0.1, "seed": 1}}
    assert names_of({"a": "gpt", "b": "gpt"}, points) == {"a": "gpt lr=0.1", "b": "gpt lr=0.2"}
    assert names_of({"a": "gpt", "b": "bert"}, points) == {"a": "gpt", "b": "bert"}
    assert names_of({"b": "gpt", "job-aaaaaa": "gpt", "job-cccccc": "gpt"}, {"b": {"lr": 1}}) == {
        "b": "gpt lr=1",
        "job-aaaaaa": "gpt aaaaaa",
        "job-cccccc": "gpt cccccc",
    }
    assert names_of({"only": ""}, {}) == {"only": "only"}
    long = names_of({"a": "n" * 200, "b": "n" * 200}, points)
    assert long["a"].endswith(" lr=0.1") and len(long["a"]) == MAX_NAME_CHARS and long["a"] != long["b"]


def test_a_logged_parameter_is_the_hyperparameter_of_its_name() -> None:
    configs = {
        "a": {"hyperparameters.lr": 0.1, "parameters.lr": "0.1", "parameters.depth": "3"},
        "b": {"hyperparameters.lr": 0.1, "parameters.lr": "1e-1"},
        "c": {"parameters.lr": "0.2"},
        "d": {"hyperparameters.lr": 0.1, "parameters.lr": "0.3"},
    }
    found = joined(configs)
    assert found["a"] == {"hyperparameters.lr": 0.1, "parameters.depth": 3}
    assert (found["b"], found["c"]) == ({"hyperparameters.lr": 0.1}, {"hyperparameters.lr": 0.2})
    assert parameters(found["d"]) == {"lr": 0.1, "lr (logged)": 0.3}
    assert [typed(text) for text in ("nan", "inf", "True", "7", "7.5", "adam")] == ["nan", "inf", True, 7, 7.5, "adam"]


def test_importance_is_a_rank_correlation_and_says_nothing_of_few_runs() -> None:
    runs = [f"r{n}" for n in range(8)]
    loss = {run: float(n) for n, run in enumerate(runs)}
    given = {
        "lr": {run: 10.0**-n for n, run in enumerate(runs)},
        "opt": {run: ("adam", "sgd")[n > 3] for n, run in enumerate(runs)},
        "same": dict.fromkeys(runs, 1),
        "few": dict(list({run: n for n, run in enumerate(runs)}.items())[: LEAST_RUNS - 1]),
        "huge": dict.fromkeys(runs, 10**400) | {"r0": 1},
    }
    found = {one["parameter"]: one for one in importance(given, loss)}
    assert found["lr"] == {"parameter": "lr", "correlation": -1.0, "runs": 8}
    assert math.isclose(found["opt = sgd"]["correlation"], 0.8729, abs_tol=1e-4), "ties have their mean rank"
    assert set(found) == {"lr", "opt = sgd", f"huge = {10**400}"}
    assert importance(given, dict.fromkeys(runs, 2.0)) == [] and importance({}, {}) == []


def archive(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return made.getvalue()


def test_code_differs_by_file_and_line() -> None:
    left = files_of(archive({"train.py": b"lr = 1\nrun()\n", "old.py": b"x\n", "data.bin": b"\0\1", "same.txt": b"same"}))
    right = files_of(archive({"train.py": b"lr = 2\nrun()\n", "new.py": b"y\n", "data.bin": b"\0\2", "same.txt": b"same"}))
    found = differing_files(left, right)
    assert [(one["path"], one["change"]) for one in found["files"]] == [
        ("data.bin", "changed"),
        ("new.py", "added"),
        ("old.py", "removed"),
        ("train.py", "changed"),
    ]
    by_path = {one["path"]: one for one in found["files"]}
    assert by_path["data.bin"]["diff"] is None
    assert by_path["train.py"]["diff"].splitlines()[3:] == ["-lr = 1", "+lr = 2", " run()"]
    assert found["more"] == 0


def test_an_archive_that_is_damaged_or_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    good = archive({"a.py": b"x" * 10_000})
    for bad in (b"", b"no archive", good[: len(good) // 2], gzip.compress(b"no tar at all" * 100)):
        with pytest.raises(UnreadableArchiveError, match="damaged"):
            files_of(bad)
    monkeypatch.setattr(code_diff, "MOST_CONTENT_BYTES", 2**20)
    with pytest.raises(UnreadableArchiveError, match="more than 1 MiB"):
        files_of(archive({"zeros": bytes(2**22)}))
    monkeypatch.setattr(code_diff, "MOST_FILES", 2)
    with pytest.raises(UnreadableArchiveError, match="more than 2 files"):
        files_of(archive({str(n): b"" for n in range(3)}))
    with pytest.raises(UnreadableArchiveError, match="more than 2 files"):
        files_of(packed([folder(str(n)) for n in range(3)]))


def folder(name: str) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type = tarfile.DIRTYPE
    return found


def packed(members: list[tarfile.TarInfo]) -> bytes:
    """An archive of headers alone."""
    blocks = b"".join(one.tobuf(tarfile.PAX_FORMAT) for one in members)
    return gzip.compress(blocks + bytes(1024))


def claiming(type_: bytes = tarfile.REGTYPE, size_bytes: int = 0, headers: dict[str, str] | None = None) -> tarfile.TarInfo:
    found = tarfile.TarInfo("huge")
    found.type, found.size, found.pax_headers = type_, size_bytes, headers or {}
    return found


def gnu_sparse() -> bytes:
    """A GNU header of a sparse file: one hole of 2**60 bytes, and nothing else."""
    head = bytearray(claiming(tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    head[483:495] = b"\x80" + (2**60).to_bytes(11, "big")
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return gzip.compress(bytes(head) + bytes(1024))


@pytest.mark.parametrize(
    "bad",
    [
        gnu_sparse(),
        packed([claiming(headers={"GNU.sparse.map": "", "GNU.sparse.size": str(2**60)})]),
        packed([claiming(headers={"GNU.sparse.size": str(2**60), "GNU.sparse.numblocks": "0"})]),
        packed([claiming(size_bytes=2**60)]),
        packed([claiming(b"Z", 2**60)]),
        packed([claiming(size_bytes=2**32, headers={"GNU.sparse.realsize": "0"})]),
    ],
    # Named: a packed archive holds the second in which it was made, and all processes have to collect tests of the same name.
    ids=["gnu-sparse", "sparse-map", "sparse-blocks", "large", "large-of-another-kind", "large-and-sparse"],
)
def test_an_archive_that_claims_more_than_it_has_is_refused(bad: bytes) -> None:
    with pytest.raises(UnreadableArchiveError):
        files_of(bad)


def test_files_beyond_what_is_compared_line_by_line_are_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = [files_of(archive({f"{n}.py": f"{side}\n".encode() * 10 for n in range(4)})) for side in "lr"]
    monkeypatch.setattr(code_diff, "MOST_COMPARED_LINES", 40)
    found = differing_files(left, right)["files"]
    assert [(one["diff"] is None, one["not_shown"]) for one in found] == [(False, "")] * 2 + [(True, code_diff.TOO_LARGE)] * 2
    monkeypatch.setattr(code_diff, "MOST_DIFF_CHARS", 10)
    compared: list[str] = []

    def long_diff(path: str, *_: object) -> str:
        compared.append(path)
        return "x" * 11

    monkeypatch.setattr(code_diff, "_diff", long_diff)
    assert [one["not_shown"] for one in differing_files(left, right)["files"]] == [code_diff.TOO_LARGE] * 4
    assert compared == ["0.py"], "once the room is spent, nothing more is compared"


def test_many_lines_differ_without_being_shown() -> None:
    many = b"line\n" * (code_diff.MOST_LINES + 1)
    found = differing_files(files_of(archive({"a": many})), files_of(archive({"a": many + b"more\n"})))
    assert found["files"][0]["diff"] is None
