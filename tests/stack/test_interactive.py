"""Interactive jobs as people use them: a terminal, real ssh, Jupyter with a kernel; who may, and how they end."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pexpect
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.support.stack.live_stack import LiveStack
from tests.support.stack.terminals import PATIENCE_S, PROMPT, begun, processes_of, spawned
from tests.support.waiting import until
from trainhouse.deploy.local.free_ports import free_port

pytestmark = pytest.mark.stack
needs_ssh = pytest.mark.skipif(
    shutil.which("ssh") is None or not (shutil.which("sshd") or Path("/usr/sbin/sshd").exists()),
    reason="OpenSSH's client and server are not installed",
)
needs_jupyter = pytest.mark.skipif(
    shutil.which("jupyter-server", path=str(Path(sys.executable).parent)) is None, reason="no jupyter-server"
)
Start = Callable[..., pexpect.spawn]


@pytest.fixture
def start(stack: LiveStack) -> Iterator[Start]:
    """Starts a command of the command line on a pseudo terminal; ends what a test leaves."""
    opened = []

    def begin(*words: str) -> pexpect.spawn:
        found = spawned(stack.environment, *words)
        opened.append(found)
        return found

    yield begin
    for each in opened:
        each.close(force=True)


@contextmanager
def ended_after(stack: LiveStack, job: str) -> Iterator[None]:
    try:
        yield
    finally:
        stack.run("cancel", job)


def status(stack: LiveStack, job: str) -> dict[str, object]:
    return dict(json.loads(stack.ok("status", job, "--json")))


def final(stack: LiveStack, job: str) -> tuple[object, object]:
    until(lambda: status(stack, job)["state"] in ("SUCCEEDED", "FAILED", "CANCELLED"), lambda: status(stack, job))
    found = status(stack, job)
    return found["state"], found["reason"]


def gateway(stack: LiveStack) -> tuple[str, str]:
    values = dict(line.removeprefix("export ").split("=", 1) for line in stack.ok("env").splitlines())
    return shlex.split(values["TRAINHOUSE_GATEWAY_URL"])[0], shlex.split(values["TRAINHOUSE_GATEWAY_TOKEN"])[0]


def test_a_terminal_has_the_window_s_size_passes_ctrl_c_and_goes_on_while_nobody_is_attached(stack: LiveStack, start: Start) -> None:
    first = start("shell")
    job = begun(first)
    with ended_after(stack, job):
        first.expect(PROMPT)
        first.sendline("stty size")
        first.expect("33 101")
        first.setwinsize(44, 90)
        first.sendline("until stty size | grep '44 90'; do sleep 0.1; done")
        first.expect("\r\n44 90")
        first.sendline("sleep 1000; echo rc=$?")
        until(lambda: "sleep" in processes_of(job), lambda: processes_of(job))
        first.sendintr()
        first.expect("rc=130|" + PROMPT)
        first.sendline("KEPT=of-before; echo set")
        first.expect("\r\nset")
        first.send("\r~.")
        first.expect("detached; .*--job")
        first.expect(pexpect.EOF)
        first.close()
        assert first.exitstatus == 0 and status(stack, job)["state"] in ("INITIALIZING", "RUNNING")
        beside = stack.run("shell", "--job", job, "--", "sh", "-c", "id -un; exit 3")
        assert beside.code == 3 and "job" in beside.out, beside
        again = start("shell", "--job", job)
        again.sendline("echo $KEPT-again; exit 7")
        again.expect("of-before-again")
        again.expect(pexpect.EOF)
        again.close()
        assert again.exitstatus == 7
        assert final(stack, job) == ("SUCCEEDED", "interactive session ended: its shell exited with code 7")
        over = stack.run("shell", "--job", job)
        assert over.code == 3 and "has ended" in over.err and "its shell exited" in over.err, over


def test_a_command_in_a_job_of_its_own_exits_with_its_code_and_leaves_nothing(stack: LiveStack) -> None:
    done = stack.run("shell", "--name", "one-command", "--", "sh", "-c", "sleep 10000 & tty; exit 5")
    job = re.search(r"one-command-[0-9a-z]+", done.out)
    assert job is not None and done.code == 5 and "/dev/pts/" in done.out, done
    assert final(stack, job[0])[0] == "SUCCEEDED"
    until(lambda: not processes_of(job[0]), lambda: processes_of(job[0]))
    until(lambda: len(audit(stack, job[0])) >= 2, lambda: audit(stack, job[0]))
    assert {row["kind"] for row in audit(stack, job[0])} >= {"granted", "ended"}
    assert all(row["sub"] for row in audit(stack, job[0]))


def audit(stack: LiveStack, job: str) -> list[dict[str, object]]:
    return stack.rows(f"SELECT kind, sub, bytes FROM audit WHERE job_id = '{job}' AND action = 'OpenTunnel'")


def test_a_session_that_nobody_uses_ends_by_itself_and_says_so(stack: LiveStack, start: Start) -> None:
    terminal = start("shell", "--idle-limit", "30s")
    job = begun(terminal)
    terminal.expect("idle: this job ends in")
    terminal.expect("the session ends: no use and no work for its idle limit of 30 s")
    terminal.expect(pexpect.EOF)
    state, reason = final(stack, job)
    assert state == "SUCCEEDED" and str(reason).startswith("interactive session ended: no use and no work for its idle limit of 30 s")


def test_several_devices_are_held_until_the_session_ends(stack: LiveStack) -> None:
    done = stack.run("shell", "--devices", "2", "--name", "two-devices", "--", "sh", "-c", "echo world $WORLD_SIZE")
    assert done.code == 0 and "world 2" in done.out, done
    job = re.search(r"two-devices-[0-9a-z]+", done.out)
    assert job is not None and final(stack, job[0]) == ("SUCCEEDED", "interactive session ended: its shell exited with code 0")


def test_a_job_of_another_project_or_user_and_one_that_is_not_interactive_are_refused(stack: LiveStack, start: Start) -> None:
    url, _ = gateway(stack)
    project, other = f"inter-{secrets.token_hex(4)}", f"other-{secrets.token_hex(4)}"
    terminal = start("shell", "--project", project)
    job = begun(terminal)

    def asked(of: str, *options: str) -> httpx.Response:
        token = stack.ok("token", "create", f"user-{secrets.token_hex(4)}", *options).strip()
        return httpx.post(f"{url}/v1/training-jobs/{of}/tunnels", headers={"Authorization": f"Bearer {token}"}, timeout=480)

    with ended_after(stack, job):
        terminal.expect(PROMPT)
        assert asked(job, "--project", other).status_code == 404
        assert asked(job, "--project", project, "--role", "viewer").status_code == 403
        stranger = asked(job, "--project", project)
        assert stranger.status_code == 403 and "only its user or an operator" in stranger.json()["detail"]
        opened = asked(job, "--project", project, "--role", "operator")
        assert opened.status_code == 200 and opened.json()["tunnel"], opened.text
        wrong = httpx.get(f"{url}/v1/tunnels/{opened.json()['tunnel']}", headers=upgrade() | {"X-Trainhouse-Ticket": "guessed"})
        assert wrong.status_code == 404
        forged = httpx.get(f"{url}/v1/tunnels/{opened.json()['tunnel']}/node", headers=upgrade())
        assert forged.status_code == 404
    plain = json.loads(stack.ok("submit", "--no-code", "--json", "--", "python", "-c", "import time; time.sleep(3600)").splitlines()[0])
    with ended_after(stack, plain["job_id"]):
        until(lambda: status(stack, plain["job_id"])["state"] == "RUNNING", lambda: status(stack, plain["job_id"]))
        refused = stack.run("shell", "--job", plain["job_id"])
        assert refused.code == 3 and "is not interactive: start one by `trainhouse shell`" in refused.err, refused


def upgrade() -> dict[str, str]:
    return {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",  # pragma: allowlist secret
    }


class SshClient:
    """OpenSSH's client with the lines of `ssh-config`, and keys in a folder of its own."""

    def __init__(self, stack: LiveStack, folder: Path) -> None:
        self.folder = folder
        config = folder / "config"
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = stack.environment | {"XDG_CONFIG_HOME": str(config), "PATH": path}
        printed = [sys.executable, "-m", "trainhouse.cli.main", "ssh-config"]
        lines = subprocess.run(printed, env=self.environment, capture_output=True, text=True, check=True).stdout
        (folder / "ssh_config").write_text(lines.replace("ProxyCommand ", f"ProxyCommand env XDG_CONFIG_HOME={config} "))

    def command(self, *words: str, program: str = "ssh") -> list[str]:
        return [program, "-F", str(self.folder / "ssh_config"), *words]

    def __call__(self, *words: str, program: str = "ssh", stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = self.command(*words, program=program)
        return subprocess.run(command, env=self.environment, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S)


@needs_ssh
def test_ssh_logs_in_with_the_job_s_host_key_and_passes_commands_terminals_and_files_on(
    stack: LiveStack, start: Start, tmp_path: Path
) -> None:
    run = SshClient(stack, tmp_path)
    terminal = start("shell")
    job = begun(terminal)

    with ended_after(stack, job):
        terminal.expect(PROMPT)
        done = run(f"{job}.trainhouse", "echo $TRAINHOUSE_JOB_ID $(id -un); cat; exit 9", stdin="through\n" * 20_000)
        assert done.returncode == 9, done.stderr
        first, *rest = done.stdout.splitlines()
        assert first == f"{job} job" and rest == ["through"] * 20_000
        with_terminal = run("-tt", f"{job}.trainhouse", "tty")
        assert with_terminal.stdout.startswith("/dev/pts/"), with_terminal
        (tmp_path / "sent").write_bytes(os.urandom(300_000))
        assert run(str(tmp_path / "sent"), f"{job}.trainhouse:copied", program="scp").returncode == 0
        assert run(f"{job}.trainhouse:copied", str(tmp_path / "back"), program="scp").returncode == 0
        assert (tmp_path / "back").read_bytes() == (tmp_path / "sent").read_bytes()
        stranger = run("-l", "root", f"{job}.trainhouse", "true")
        assert stranger.returncode == 255 and "log in as the job's user: ssh job@" in stranger.stderr
        known = tmp_path / "config" / "trainhouse" / "ssh" / "known_hosts"
        assert known.read_text().startswith(f"{job}.trainhouse ssh-ed25519 ") and known.stat().st_mode & 0o077 == 0
    absent = run("shell-0000000000000.trainhouse", "true")
    assert absent.returncode == 255 and "there is no job" in absent.stderr


@needs_ssh
def test_what_vs_code_s_remote_ssh_does_with_ssh_works(stack: LiveStack, start: Start, tmp_path: Path) -> None:
    """Its server is installed and started by a script on standard input; it is reached by a dynamic forward; files go by sftp."""
    run, terminal = SshClient(stack, tmp_path), start("shell")
    job = begun(terminal)
    host, socks, local, inner = f"{job}.trainhouse", free_port(), free_port(), free_port()
    here, there = tmp_path / "l.sock", "/tmp/server.sock"
    with ended_after(stack, job):
        terminal.expect(PROMPT)
        plain = run(host, "uname -a")
        assert plain.returncode == 0 and plain.stdout.startswith("Linux ") and plain.stdout.count("\n") == 1 and not plain.stderr, plain
        script = SERVER.format(port=inner, socket=there) + "read word\nfrom-input\necho got $word\nexit 3\n"
        begun_there = run("-T", "-D", str(socks), host, "bash", stdin=script)
        assert (begun_there.returncode, begun_there.stdout) == (3, "started\ngot from-input\n"), begun_there
        forwards = ["-N", "-D", str(socks), "-L", f"{local}:127.0.0.1:{inner}", "-L", f"{here}:{there}"]
        held = subprocess.Popen(run.command(*forwards, host), env=run.environment, stdin=subprocess.DEVNULL)
        try:
            until(here.exists, lambda: held.poll(), timeout_s=PATIENCE_S)
            for address in (f"tcp:127.0.0.1:{local}", f"unix:{here}", f"socks:127.0.0.1:{socks}:{inner}"):
                assert echoed(address, b"through") == b"served through", address
            # Without a master connection each window has connections of its own.
            windows = [
                subprocess.Popen(run.command(host, f"echo {n}; sleep 1"), env=run.environment, stdout=subprocess.PIPE) for n in range(5)
            ]
            assert [each.communicate(timeout=PATIENCE_S)[0] for each in windows] == [b"%d\n" % n for n in range(5)]
        finally:
            held.terminate()
            held.wait(PATIENCE_S)
        (tmp_path / "sent").write_bytes(os.urandom(100_000))
        there_and_back = "mkdir d\nrename up d/moved\nrename d/moved moved\nrmdir d\n"
        batch = f"put {tmp_path}/sent up\n{there_and_back}ls -l moved\nget moved {tmp_path}/back\nrm moved\n"
        moved = run("-b", "-", host, program="sftp", stdin=batch)
        assert moved.returncode == 0, moved
        assert (tmp_path / "back").read_bytes() == (tmp_path / "sent").read_bytes()
        refused = run("-X", host, "echo display=$DISPLAY")
        assert refused.stdout == "display=\n", "there is no X11 by the way of a job"


SERVER = """
cat > ~/server.py <<'END'
import socket, sys, threading
def serve(listener):
    while True:
        one, _ = listener.accept()
        one.sendall(b"served " + one.recv(100))
        one.close()
tcp = socket.create_server(("127.0.0.1", {port}))
unix = socket.socket(socket.AF_UNIX); unix.bind("{socket}"); unix.listen()
print("started", flush=True)
threading.Thread(target=serve, args=(unix,)).start()
serve(tcp)
END
nohup python ~/server.py > ~/server.log 2>&1 < /dev/null &
until grep -q started ~/server.log; do sleep 0.1; done; cat ~/server.log
"""


def echoed(address: str, data: bytes) -> bytes:
    """What a server answers at `tcp:HOST:PORT`, `unix:PATH`, or behind a SOCKS5 proxy at `socks:HOST:PORT:PORT_THERE`."""
    kind, _, rest = address.partition(":")
    if kind == "unix":
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(rest)
    else:
        connection = socket.create_connection((rest.split(":")[0], int(rest.split(":")[1])))
    with connection:
        connection.settimeout(PATIENCE_S)
        if kind == "socks":
            name = b"localhost"
            connection.sendall(b"\x05\x01\x00")
            assert connection.recv(2) == b"\x05\x00"
            connection.sendall(b"\x05\x01\x00\x03" + bytes([len(name)]) + name + int(rest.split(":")[2]).to_bytes(2, "big"))
            assert connection.recv(10)[:2] == b"\x05\x00"
        connection.sendall(data)
        return connection.recv(100)


def printed(channel: ClientConnection, asked: str) -> str | None:
    """What a kernel prints when it is asked. A kernel that has just begun may print before anything listens: it is asked again."""
    channel.send(asked)
    with suppress(TimeoutError):
        while True:
            found = json.loads(channel.recv(30))
            if found["msg_type"] == "stream":
                return str(found["content"]["text"])
    return None


@needs_jupyter
def test_jupyter_answers_and_computes_at_a_port_of_this_machine(stack: LiveStack, start: Start) -> None:
    terminal = start("notebook")
    job = begun(terminal, "notebook")
    with ended_after(stack, job):
        terminal.expect(r"http://notebook\.localhost:(\d+)/\?token=([0-9a-f]+)")
        base, token = f"http://127.0.0.1:{terminal.match[1]}", terminal.match[2]
        headers = {"Authorization": f"token {token}", "Host": f"notebook.localhost:{terminal.match[1]}"}
        with httpx.Client(base_url=base, headers=headers, timeout=PATIENCE_S) as client:
            assert client.get("/api/status").json()["kernels"] == 0
            assert httpx.get(f"{base}/api/contents", timeout=PATIENCE_S).status_code == 403
            kernel = client.post("/api/kernels", json={"name": "python3"}).json()["id"]
        address = f"ws{base.removeprefix('http')}/api/kernels/{kernel}/channels?token={token}"
        with connect(address, open_timeout=PATIENCE_S) as channel:
            header = {"msg_id": "m", "msg_type": "execute_request", "username": "", "session": "s", "date": "", "version": "5.3"}
            content = {"code": "print(6 * 7)", "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
            asked = json.dumps({"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content})
            assert until(lambda: printed(channel, asked), "the kernel to print") == "42\n"
        beside = stack.run("shell", "--job", job, "--", "echo", "beside")
        assert beside.code == 0 and "beside" in beside.out
        terminal.sendintr()
        terminal.expect("detached; .*notebook --job")
        terminal.expect(pexpect.EOF)
        assert status(stack, job)["state"] in ("INITIALIZING", "RUNNING")
    assert final(stack, job)[0] == "CANCELLED"
    until(lambda: not processes_of(job), lambda: processes_of(job))
