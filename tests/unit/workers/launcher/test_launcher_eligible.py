"""When a start may be warm: only when a cold one would have given the same."""

from dataclasses import replace
from pathlib import Path

import pytest

from trainhouse.workers.launcher.eligible import Interpreter, Wanted, WarmFacts, start_time_environment, why_cold
from trainhouse.workers.launcher.interpreters import identify, local_modules, looks_like_python, resolve

PYTHON = Interpreter("/usr/bin/python3.11", "/venv", "2.15.0")
WARM = WarmFacts(PYTHON, {"PYTHONHASHSEED": "0"}, frozenset({"torch", "numpy", "json"}))
GOOD = Wanted(("/venv/bin/python", "train.py", "--lr", "1"), {"PYTHONHASHSEED": "0", "PATH": "/bin", "RANK": "0"}, PYTHON)


@pytest.mark.parametrize(
    "wanted",
    [
        GOOD,
        replace(GOOD, command=("python", "-u", "train.py")),
        replace(GOOD, command=("python", "-m", "package.train", "x")),
        replace(GOOD, env={**GOOD.env, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONPATH": "/code", "TORCHELASTIC_RUN_ID": "j"}),
        replace(GOOD, local_modules=frozenset({"train", "helpers"})),
    ],
)
def test_warm(wanted: Wanted) -> None:
    assert why_cold(wanted, WARM) == ""


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (replace(GOOD, interpreter=None, command=("bash", "run.sh")), "not python"),
        (replace(GOOD, interpreter=replace(PYTHON, torch_version="2.14.0")), "2.14.0"),
        (replace(GOOD, interpreter=replace(PYTHON, prefix="/other")), "/other"),
        (replace(GOOD, interpreter=replace(PYTHON, program="/usr/bin/python3.12")), "3.12"),
        (replace(GOOD, command=("python",)), "without a script"),
        (replace(GOOD, command=("python", "-O", "train.py")), "-O"),
        (replace(GOOD, command=("python", "-c", "print()")), "-c"),
        (replace(GOOD, command=("python", "-m")), "without a module"),
        (replace(GOOD, command=("python", "folder")), "folder"),
        (replace(GOOD, env={**GOOD.env, "LD_PRELOAD": "x.so"}), "LD_PRELOAD"),
        (replace(GOOD, env={**GOOD.env, "PYTHONHASHSEED": "7"}), "PYTHONHASHSEED"),
        (replace(GOOD, env={**GOOD.env, "PYTHONOPTIMIZE": "1"}), "PYTHONOPTIMIZE"),
        (replace(GOOD, env={**GOOD.env, "TORCH_LOGS": "+dynamo"}), "TORCH_LOGS"),
        (replace(GOOD, env={**GOOD.env, "MKL_NUM_THREADS": "4"}), "MKL_NUM_THREADS"),
        (replace(GOOD, local_modules=frozenset({"numpy", "train"})), "numpy"),
    ],
)
def test_cold(wanted: Wanted, says: str) -> None:
    assert says in why_cold(wanted, WARM)


def test_without_a_warm_process() -> None:
    assert why_cold(GOOD, None)


def test_a_variable_that_only_the_warm_process_has_makes_it_cold() -> None:
    assert "LD_LIBRARY_PATH" in why_cold(GOOD, replace(WARM, env={**WARM.env, "LD_LIBRARY_PATH": "/lib"}))


def test_the_start_time_part_of_an_environment() -> None:
    environ = {
        "LD_LIBRARY_PATH": "/x",
        "PATH": "/bin",
        "TORCH_LOGS": "a",
        "PYTHONPATH": "/y",
        "OMP_NUM_THREADS": "2",
        "PYTHONHASHSEED": "9",
    }
    assert start_time_environment(environ) == {"LD_LIBRARY_PATH": "/x", "TORCH_LOGS": "a"}


def venv(folder: Path, base: Path, torch: str) -> str:
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("")
    (folder / "bin" / "python").symlink_to(base)
    site = folder / "lib" / "python3.11" / "site-packages" / "torch"
    site.mkdir(parents=True)
    (site / "version.py").write_text(f"__version__ = '{torch}'\n")
    return str(folder / "bin" / "python")


def test_two_environments_on_one_python_are_two_interpreters(tmp_path: Path) -> None:
    base = tmp_path / "base" / "bin" / "python3.11"
    base.parent.mkdir(parents=True)
    base.touch()
    one, other = identify(venv(tmp_path / "a", base, "2.15.0+cpu")), identify(venv(tmp_path / "b", base, "2.15.0+cpu"))
    assert one != other and one.program == other.program
    assert one.torch_version == "2.15.0+cpu"
    assert identify(str(base)).torch_version == ""


def test_how_a_command_is_resolved(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.touch(mode=0o755)
    assert resolve(("python", "x.py"), "/venv/bin/python", {}) == ("/venv/bin/python", "x.py")
    assert resolve(("tool", "a"), "/p", {"PATH": str(tmp_path)}) == (str(tool), "a")
    assert resolve(("./tool",), "/p", {}) == ("./tool",)
    assert looks_like_python("/a/python3.11") and not looks_like_python("/a/pythonic")


def test_modules_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "code" / "pkg").mkdir(parents=True)
    (tmp_path / "code" / "numpy.py").touch()
    (tmp_path / "code" / "read-me.txt").touch()
    (tmp_path / "more" / "json").mkdir(parents=True)
    found = local_modules(("python", "-u", "code/train.py"), tmp_path, {"PYTHONPATH": "more:absent"})
    assert found == {"pkg", "numpy", "json"}
    assert "code" in local_modules(("python", "-m", "x"), tmp_path, {})
