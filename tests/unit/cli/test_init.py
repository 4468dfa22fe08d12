"""`trainhouse init`: the spec is valid, the lines are at their places, and no file is changed."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from trainhouse.cli.init.script_lines import NoPlaceError, with_lines
from trainhouse.cli.jobs.spec_build import Typed, fields_of, specs_of
from trainhouse.cli.jobs.spec_file import read
from trainhouse.cli.main import build

SCRIPT = '''\
"""Fits a line."""

import torch
from torch import nn

net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
grüße = 3
for step in range(grüße * 2):
    x = torch.randn(8, 4)
    error = (net(x) - x.sum(1, keepdim=True)).square().mean()
    opt.zero_grad()
    error.backward()
    opt.step()
print("error", error.item() >= 0)
'''
START = "from trainhouse.workers import Session\n\nsession = Session.start()  # joins the gang, seeds every generator\n"
TRACKED = (
    SCRIPT.replace("range(", "session.steps(")
    .replace("from torch import nn\n", f"from torch import nn\n{START}")
    .replace("for step", "session.track(model=net, optimizer=opt)\nfor step")
    .replace("    opt.step()\n", "    opt.step()\n    session.log(loss=error.item())\n")
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(build("init"), ["init", *arguments])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def test_lines_are_where_they_belong() -> None:
    assert with_lines(SCRIPT, "train.py") == TRACKED


@pytest.mark.parametrize("ending", ["", "\n"])
def test_a_loop_that_ends_the_script_gets_its_line(ending: str) -> None:
    text = with_lines(SCRIPT[: SCRIPT.index("\nprint")] + ending, "train.py")
    assert text.endswith("    opt.step()\n    session.log(loss=error.item())\n")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("range(grüße * 2)", "enumerate(rows)", "train.py:9: the loop that calls error.backward() does not count steps by range(STEPS)"),
        ("error.backward()", "step()", "no loop that calls LOSS.backward()"),
        ("net.parameters()", "weights", "makes no optimizer of MODEL.parameters()"),
        ("import torch\n", "import torch\nfrom trainhouse.workers import Session\n", "imports Trainhouse already"),
        ("for step", "for step in", "train.py:9:"),
        ("Fits a line.", "Fits\0 a line.", "null bytes"),
    ],
)
def test_a_script_without_the_places_says_which(old: str, new: str, problem: str) -> None:
    with pytest.raises(NoPlaceError) as caught:
        with_lines(SCRIPT.replace(old, new, 1), "train.py")
    assert problem in str(caught.value)


def test_the_spec_is_valid_and_the_script_stays(folder: Path) -> None:
    done = run("train.py", "--gang", "2")
    assert done.exit_code == 0, done.output
    assert "+session.track(model=net, optimizer=opt)" in done.output
    (spec,) = specs_of(fields_of(Typed(), (file := read(folder / "trainhouse.yaml")).data, "ada"), file)
    assert (spec.name, spec.gang.ranks, tuple(spec.runtime.command)) == ("train", 2, ("python", "train.py"))
    assert (folder / "train.py").read_text() == SCRIPT and sorted(p.name for p in folder.iterdir()) == ["train.py", "trainhouse.yaml"]


def test_nothing_that_exists_is_written(folder: Path) -> None:
    (folder / "trainhouse.yaml").write_text("mine")
    assert "trainhouse.yaml exists" in str(run("train.py").exception)
    assert "train.py exists" in str(run("train.py", "--spec", "other.yaml", "--out", "train.py").exception)
    assert (folder / "trainhouse.yaml").read_text() == "mine" and not (folder / "other.yaml").exists()


def test_a_script_that_is_not_there_is_named(folder: Path) -> None:
    assert "nothing.py cannot be read" in str(run("nothing.py").exception)


def test_without_a_place_the_lines_are_shown_and_the_spec_is_written(folder: Path) -> None:
    (folder / "train.py").write_text("print(1)\n")
    done = run("--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 0 and "makes no optimizer" in found["problem"] and found["diff"] == ""
    assert (folder / "trainhouse.yaml").exists()


def test_a_script_with_the_lines_runs_alone(folder: Path) -> None:
    assert run("train.py", "--out", "tracked.py").exit_code == 0
    done = subprocess.run([sys.executable, "tracked.py"], cwd=folder, capture_output=True, text=True, timeout=300)
    assert "error True" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("grüße = 3\n", "\x0c\ngrüße = 3\n"),
        ("grüße = 3\n", 'grüße = 3\nSEPARATOR = "a\u2028b"\n'),
        ("    ", "\t"),
        ("    opt.step()\n", "    opt.step()\nelse:\n    print(1)\n"),
        ("from torch import nn\n", 'from torch import nn; TEXT = """\nof two lines"""\n'),
    ],
    ids=["form feed", "U+2028", "tabs", "else", "a text that begins on the line of an import"],
)
def test_lines_are_where_the_syntax_tree_has_them(old: str, new: str) -> None:
    script, expected = SCRIPT.replace(old, new), TRACKED.replace(old, new)
    if old.startswith("from torch"):
        expected = TRACKED.replace(f"{old}{START}", f"{new}{START}")
    if "else:" in new:
        log = "    session.log(loss=error.item())\n"
        expected = TRACKED.replace(log, f"{log}else:\n    print(1)\n")
    text = with_lines(script, "train.py")
    assert text == expected
    ast.parse(text)


def test_a_loop_on_one_line_is_for_a_person() -> None:
    body = SCRIPT[SCRIPT.index("    x =") : SCRIPT.index("print(")]
    joined = "; ".join(line.strip() for line in body.splitlines())
    with pytest.raises(NoPlaceError, match=r"train.py:9: the loop that calls error.backward\(\) has its body on the line of `for`"):
        with_lines(SCRIPT.replace(f":\n{body}", f": {joined}\n"), "train.py")


def test_the_difference_has_whole_lines(folder: Path) -> None:
    (folder / "train.py").write_text(SCRIPT.replace("grüße = 3\n", 'grüße = 3\nSEPARATOR = "a\u2028b"\n'), encoding="utf-8")
    difference = json.loads(run("--json").stdout)["diff"]
    assert ' SEPARATOR = "a\u2028b"\n' in difference


@pytest.mark.parametrize("out", ["none/tracked.py", "trainhouse.yaml"])
def test_no_spec_is_left_where_the_script_cannot_be_written(folder: Path, out: str) -> None:
    assert run("train.py", "--out", out).exit_code != 0
    assert [path.name for path in folder.iterdir()] == ["train.py"]


def test_no_script_is_left_where_the_spec_cannot_be_written(folder: Path) -> None:
    assert "none/a.yaml cannot be written" in str(run("train.py", "--spec", "none/a.yaml", "--out", "tracked.py").exception)
    assert [path.name for path in folder.iterdir()] == ["train.py"]


def test_a_script_that_joins_the_ranks_itself_does_so_only_without_a_session() -> None:
    old = "net = nn.Linear(4, 1)\n"
    assert old in SCRIPT, "the script makes its model so"
    script = SCRIPT.replace(old, f'torch.distributed.init_process_group("gloo", rank=0, world_size=1)\n{old}')
    text = with_lines(script, "train.py")
    assert (
        "if not torch.distributed.is_initialized():  # Session.start() joins the ranks\n"
        '    torch.distributed.init_process_group("gloo", rank=0, world_size=1)\n'
    ) in text
    for other in (
        "init_process_group()\n",
        "handle = torch.distributed.init_process_group()\n",
        "torch.distributed.init_process_group(\n)\n",
    ):
        with pytest.raises(NoPlaceError, match="joins the ranks"):
            with_lines(SCRIPT.replace(old, other + old), "train.py")


def test_line_ends_stay_as_they_are(folder: Path) -> None:
    (folder / "train.py").write_bytes(SCRIPT.replace("\n", "\r\n").encode())
    text = with_lines(SCRIPT.replace("\n", "\r\n"), "train.py")
    assert text == TRACKED.replace("\n", "\r\n")
