"""The launcher for real: warm and cold starts, exit codes, signals, secrets, and what survives whom."""

import gzip
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.integration.launcher_support import TRAIN, Attempt
from tests.support.waiting import until
from trainhouse.workers.launcher import (
    Launcher,
    LaunchError,
    attempt_alive,
    kill_keeper,
    kill_tree,
    rank_alive,
    read_exit,
    terminate,
)
from trainhouse.workers.launcher.processes import read_process

COLD = {"PYTHONNOUSERSITE": "1"}


@pytest.fixture
def attempt(tmp_path: Path) -> Iterator[Attempt]:
    attempt = Attempt(tmp_path / "attempt")
    yield attempt
    attempt.close()
    until(lambda: not attempt_alive(attempt.paths))


def run(launcher: Launcher, attempt: Attempt, script: str, *, warm: bool, **more: object) -> None:
    (attempt.paths.code / "train.py").write_text(script)
    env = dict(more.pop("env", {})) | ({} if warm else COLD)  # type: ignore[call-overload]
    started = launcher.start(attempt.paths, attempt.launches(env=env, **more), attempt.store)  # type: ignore[arg-type]
    assert started.warm is warm, started.why_cold


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
class TestBothWays:
    """What a script sees and what is recorded does not depend on how it was started."""

    def test_two_ranks_of_an_unmodified_script_train(self, launcher: Launcher, attempt: Attempt, warm: bool) -> None:
        attempt.ranks = 2
        run(launcher, attempt, TRAIN, warm=warm)
        assert [attempt.exit_of(r, 90).exit_code for r in (0, 1)] == [0, 0], attempt.stderr(0) + attempt.stderr(1)
        lines = [attempt.stdout(r).splitlines()[-1] for r in (0, 1)]
        assert lines[0].startswith("rank 0 of 2") and lines[0].split("weight")[1] == lines[1].split("weight")[1]

    @pytest.mark.parametrize(
        ("script", "code", "says"),
        [
            ("print('done')", 0, ""),
            ("import sys; sys.exit(3)", 3, ""),
            ("import sys; sys.exit('gone wrong')", 1, "gone wrong"),
            ("def f():\n    raise ValueError('no good')\nf()", 1, "line 2, in f\n    raise ValueError('no good')\nValueError: no good"),
            ("x = = 1", 1, "SyntaxError"),
            ("import os; os._exit(7)", 7, ""),
            (
                "import atexit, threading, time\natexit.register(print, 'last')\n"
                "threading.Thread(target=lambda: (time.sleep(.1), print('first'))).start()",
                0,
                "",
            ),
        ],
    )
    def test_exit_codes(self, launcher: Launcher, attempt: Attempt, warm: bool, script: str, code: int, says: str) -> None:
        run(launcher, attempt, script, warm=warm)
        record = attempt.exit_of()
        assert (record.exit_code, record.signal) == (code, None)
        assert says in attempt.stderr()
        assert "launcher" not in attempt.stderr()  # a traceback shows the user's frames only
        if "atexit" in script:
            assert attempt.stdout() == "first\nlast\n"

    def test_files_that_a_program_leaves_open_are_whole(self, launcher: Launcher, attempt: Attempt, warm: bool) -> None:
        script = (
            "import gzip, io\n"
            "text = open('text', 'w'); text.write('x' * 9)\n"
            "data = open('data', 'wb'); data.write(b'y' * 9)\n"
            "packed = gzip.open('packed.gz', 'wt'); packed.write('z' * 9)\n"
            "class Broken(io.StringIO):\n"
            "    def close(self): raise OSError('not now')\n"
            "broken = Broken()\n"
            "print('said')"
        )
        run(launcher, attempt, script, warm=warm)
        assert (attempt.exit_of().exit_code, attempt.stdout()) == (0, "said\n"), attempt.stderr()
        code = attempt.paths.code
        assert ((code / "text").read_text(), (code / "data").read_bytes()) == ("x" * 9, b"y" * 9)
        assert gzip.decompress((code / "packed.gz").read_bytes()) == b"z" * 9

    def test_a_signal_is_recorded(self, launcher: Launcher, attempt: Attempt, warm: bool) -> None:
        run(launcher, attempt, "import os, signal\nprint('so far')\nos.kill(os.getpid(), signal.SIGKILL)", warm=warm)
        record = attempt.exit_of()
        assert (record.exit_code, record.signal, attempt.stdout()) == (None, signal.SIGKILL, "so far\n")

    def test_a_script_that_does_not_exist(self, launcher: Launcher, attempt: Attempt, warm: bool) -> None:
        (attempt.paths.code / "train.py").unlink()
        started = launcher.start(attempt.paths, attempt.launches(env={} if warm else COLD), attempt.store)
        assert started.warm is warm
        assert attempt.exit_of().exit_code == 2
        assert "can't open file" in attempt.stderr() and "train.py" in attempt.stderr()

    def test_what_a_script_sees(self, launcher: Launcher, attempt: Attempt, warm: bool) -> None:
        (attempt.paths.code / "helper_of_mine.py").write_text("VALUE = 5")
        script = (
            "import sys, os, helper_of_mine, __main__\n"
            "print(sys.argv, __name__, __main__.__file__ == os.path.abspath('train.py'), os.getcwd() == sys.path[0], os.environ['MINE'])\n"
            "print(sorted(k for k in os.environ if k.startswith('PYTEST')), os.getsid(0) == os.getpid(), sys.stdin.read() == '')"
        )
        (attempt.paths.code / "train.py").write_text(script)
        launches = attempt.launches(("python", "-u", "train.py", "--lr", "0.1"), {"MINE": "yes"} | ({} if warm else COLD))
        assert launcher.start(attempt.paths, launches, None).warm is warm
        assert attempt.exit_of().exit_code == 0, attempt.stderr()
        assert attempt.stdout() == "['train.py', '--lr', '0.1'] __main__ True True yes\n[] True True\n"

    def test_a_module(self, launcher: Launcher, attempt: Attempt, warm: bool) -> None:
        (attempt.paths.code / "my_program").mkdir()
        (attempt.paths.code / "my_program" / "__main__.py").write_text("import sys; print(sys.argv[1:], __package__)")
        launches = attempt.launches(("python", "-m", "my_program", "x"), {} if warm else COLD)
        assert launcher.start(attempt.paths, launches, None).warm is warm
        assert attempt.exit_of().exit_code == 0, attempt.stderr()
        assert attempt.stdout() == "['x'] my_program\n"

    def test_secrets_reach_the_rank_but_no_log_and_no_process_list(self, launcher: Launcher, attempt: Attempt, warm: bool) -> None:
        secret = "hunter2-and-more"  # pragma: allowlist secret
        script = (
            "import os, sys, time\ns = os.environ['TOKEN']\nprint('it is', s)\nsys.stdout.flush()\n"
            "os.write(1, s[:7].encode()); time.sleep(0.3); os.write(1, s[7:].encode() + b' end')\n"
            "print(s, file=sys.stderr)\nwhile not os.path.exists('stop'): time.sleep(0.01)"
        )
        run(launcher, attempt, script, warm=warm, secrets={"TOKEN": secret})
        until(lambda: "end" in attempt.stdout())
        lines = [" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])]
        assert not any(secret in line for line in lines)
        (attempt.paths.code / "stop").touch()
        assert attempt.exit_of().exit_code == 0
        assert (attempt.stdout(), attempt.stderr()) == ("it is ***\n*** end", "***\n")
        found = [p for p in attempt.paths.folder.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]
        assert found == []

    def test_a_program_that_knows_no_signals_ends_by_sigterm(self, launcher: Launcher, attempt: Attempt, warm: bool) -> None:
        run(launcher, attempt, "import time\nprint('there', flush=True)\ntime.sleep(600)", warm=warm)
        until(attempt.stdout)
        assert terminate(attempt.paths) == 1
        assert attempt.exit_of().signal == signal.SIGTERM

    def test_sigterm_then_sigkill_of_the_whole_tree(self, launcher: Launcher, attempt: Attempt, warm: bool) -> None:
        script = (
            "import os, signal, subprocess, sys, time\nsignal.signal(signal.SIGTERM, lambda *a: print('asked to stop', flush=True))\n"
            "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
            "print(p.pid, flush=True)\nwhile True: time.sleep(0.01)"
        )
        run(launcher, attempt, script, warm=warm)
        child = int(until(attempt.stdout))
        assert terminate(attempt.paths) == 1
        until(lambda: "asked to stop" in attempt.stdout())
        assert rank_alive(attempt.paths.rank(0)) and read_exit(attempt.paths.rank(0)) is None
        assert kill_tree(attempt.paths) >= 2
        assert attempt.exit_of().signal == signal.SIGKILL
        until(lambda: not attempt_alive(attempt.paths))
        assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE

    def test_what_a_rank_leaves_behind_is_swept(self, launcher: Launcher, attempt: Attempt, warm: bool) -> None:
        script = (
            "import subprocess, sys\n"
            "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True).pid)"
        )
        run(launcher, attempt, script, warm=warm)
        assert attempt.exit_of().exit_code == 0
        until(lambda: not attempt_alive(attempt.paths))
        until(lambda: not psutil.pid_exists(int(attempt.stdout())), "it is gone")


def test_a_command_that_does_not_exist_is_refused_for_good(launcher: Launcher, attempt: Attempt) -> None:
    with pytest.raises(LaunchError, match="no-such-program") as caught:
        launcher.start(attempt.paths, attempt.launches(("no-such-program",)), None)
    assert not caught.value.retryable
    until(lambda: not attempt_alive(attempt.paths))


def test_any_command_runs(launcher: Launcher, attempt: Attempt) -> None:
    started = launcher.start(attempt.paths, attempt.launches(("sh", "-c", "echo $RANK; exit 4")), None)
    assert not started.warm and "not python" in started.why_cold
    assert (attempt.exit_of().exit_code, attempt.stdout()) == (4, "0\n")


def test_another_interpreter_starts_cold(launcher: Launcher, attempt: Attempt) -> None:
    (attempt.paths.code / "train.py").write_text("import sys; print(sys.prefix)")
    base = os.path.realpath(sys.executable)
    started = launcher.start(attempt.paths, [replace(r, interpreter=base) for r in attempt.launches()], None)
    assert not started.warm
    assert attempt.exit_of().exit_code == 0
    assert attempt.stdout().strip() == sys.base_prefix != sys.prefix


def test_a_program_with_a_module_of_torchs_name_starts_cold(launcher: Launcher, attempt: Attempt) -> None:
    (attempt.paths.code / "numpy.py").write_text("MINE = True")
    (attempt.paths.code / "train.py").write_text("import numpy; print(numpy.MINE)")
    started = launcher.start(attempt.paths, attempt.launches(), None)
    assert not started.warm and "numpy" in started.why_cold
    assert attempt.exit_of().exit_code == 0 and attempt.stdout() == "True\n"


def test_each_rank_draws_numbers_of_its_own(launcher: Launcher, attempt: Attempt) -> None:
    attempt.ranks = 2
    script = "import numpy, random, torch\nprint(numpy.random.rand(), random.random(), torch.rand(1).item(), torch.initial_seed())"
    run(launcher, attempt, script, warm=True)
    assert [attempt.exit_of(r).exit_code for r in (0, 1)] == [0, 0]
    assert not set(attempt.stdout(0).split()) & set(attempt.stdout(1).split())


def test_a_rank_finds_no_secret_of_an_earlier_job_in_the_memory_that_it_inherits(launcher: Launcher, tmp_path: Path) -> None:
    scan = (
        "import re\nfound = 0\n"
        "for line in open('/proc/self/maps').read().splitlines():\n"
        "    span, rights, *_ = line.split()\n"
        "    start, end = (int(at, 16) for at in span.split('-'))\n"
        "    with open('/proc/self/mem', 'rb', 0) as memory:\n"
        "        try:\n"
        "            memory.seek(start)\n"
        "            found += 'w' in rights and len(re.findall(rb'sesame-[0-9a-f]{32}', memory.read(end - start)))\n"
        "        except (OSError, ValueError, OverflowError): pass\n"
        "print('found', found)"
    )
    secret = ",".join([f"sesame-{uuid.uuid4().hex}"] * 100)
    for name, script, secrets, said in (("first", "print('ran')", {"TOKEN": secret}, "ran\n"), ("second", scan, {}, "found 0\n")):
        attempt = Attempt(tmp_path / name, script)
        try:
            assert launcher.start(attempt.paths, attempt.launches(secrets=secrets), None).warm
            assert (attempt.exit_of().exit_code, attempt.stdout()) == (0, said), attempt.stderr()
        finally:
            attempt.close()
            until(lambda attempt=attempt: not attempt_alive(attempt.paths))


def test_a_dead_warm_process_is_replaced_and_the_start_is_cold(tmp_path: Path) -> None:
    launcher = Launcher(warm_wait_s=120)
    attempt = Attempt(tmp_path / "a", "print('here')")
    try:
        launcher.prepare()
        until(launcher.warm_ready)
        warm = launcher.warm_pid()
        assert warm is not None
        os.kill(warm, signal.SIGKILL)
        until(lambda: not launcher.warm_ready())
        assert not launcher.start(attempt.paths, attempt.launches(), None).warm
        assert attempt.exit_of().exit_code == 0 and attempt.stdout() == "here\n"
        assert launcher.warm_pid() not in (None, warm)
    finally:
        attempt.close()
        launcher.close()


def test_the_store_of_a_cold_single_rank_is_there_when_it_is_asked(launcher: Launcher, attempt: Attempt) -> None:
    script = (
        "import os, sys\nfrom datetime import timedelta\nfrom torch.distributed import TCPStore\n"
        "store = TCPStore(os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']), 1, False, timedelta(seconds=60))\n"
        "store.set('a', 'b')\nprint(store.get('a'), flush=True)\nos._exit(0)"
    )
    run(launcher, attempt, script, warm=False)
    assert (attempt.exit_of().exit_code, attempt.stdout()) == (0, "b'b'\n"), attempt.stderr()


def test_with_warm_starts_off_none_is_held_and_a_start_says_so(attempt: Attempt) -> None:
    launcher = Launcher(warm_start=False)
    launcher.prepare()
    (attempt.paths.code / "train.py").write_text("print('here')")
    started = launcher.start(attempt.paths, attempt.launches(), None)
    assert (started.warm, started.why_cold, launcher.warm_pid()) == (False, "warm starts are switched off", None)
    assert attempt.exit_of().exit_code == 0 and attempt.stdout() == "here\n"


def test_one_gang_on_two_nodes(launcher: Launcher, tmp_path: Path) -> None:
    first, second = Attempt(tmp_path / "a", TRAIN, ranks=2), Attempt(tmp_path / "b", TRAIN, ranks=2)
    port = {"MASTER_PORT": str(first.listener.getsockname()[1])}
    try:  # the other node is earlier than the one that hosts the store: its rank waits in the socket's queue
        launcher.start(second.paths, second.launches(env=port)[1:], None)
        until(lambda: rank_alive(second.paths.rank(1)))
        launcher.start(first.paths, first.launches(env=port)[:1], first.store)
        assert first.exit_of(0).exit_code == 0, first.stderr(0)
        assert second.exit_of(1).exit_code == 0, second.stderr(1)
        assert "of 2" in first.stdout(0) and "of 2" in second.stdout(1)
    finally:
        first.close()
        second.close()


def test_ranks_survive_their_keeper_whose_records_then_lack(launcher: Launcher, attempt: Attempt) -> None:
    script = "import os, time\nprint('up')\nwhile not os.path.exists('stop'): time.sleep(0.01)"
    run(launcher, attempt, script, warm=True)
    until(attempt.stdout)
    assert kill_keeper(attempt.paths)
    until(lambda: read_process(attempt.paths.keeper) is None)
    assert rank_alive(attempt.paths.rank(0)) and attempt_alive(attempt.paths)
    assert kill_tree(attempt.paths) == 1
    until(lambda: not attempt_alive(attempt.paths))
    assert read_exit(attempt.paths.rank(0)) is None and not rank_alive(attempt.paths.rank(0))


STARTER = """
import sys, time
from pathlib import Path
from tests.integration.launcher_support import Attempt
from tests.support.waiting import until
from trainhouse.workers.launcher import Launcher
launcher = Launcher(warm_wait_s=120)
if sys.argv[2] == "warm":
    launcher.prepare(); until(launcher.warm_ready)
attempt = Attempt(Path(sys.argv[1]), open(sys.argv[3]).read())
print(launcher.start(attempt.paths, attempt.launches(), None).warm, launcher.warm_pid(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["warm", "cold"])
def test_ranks_survive_the_death_of_who_started_them(tmp_path: Path, how: str) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os, time\nprint('up', flush=True)\nwhile not os.path.exists('stop'): time.sleep(0.01)\nraise SystemExit(9)")
    command = [sys.executable, "-c", STARTER, str(tmp_path / "a"), how, str(script)]
    starter = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    assert starter.stdout is not None
    warm, warm_pid = starter.stdout.readline().split()
    assert warm == str(how == "warm")
    attempt = Attempt(tmp_path / "a")
    try:
        until(lambda: attempt.paths.rank(0).stdout.exists() and attempt.stdout())
        starter.kill()
        starter.wait()
        if warm_pid != "None":
            until(lambda: not psutil.pid_exists(int(warm_pid)) or psutil.Process(int(warm_pid)).status() == psutil.STATUS_ZOMBIE)
        assert rank_alive(attempt.paths.rank(0)) and attempt_alive(attempt.paths)
        (attempt.paths.code / "stop").touch()
        assert attempt.exit_of().exit_code == 9
        until(lambda: not attempt_alive(attempt.paths))
    finally:
        starter.kill()
        attempt.close()
