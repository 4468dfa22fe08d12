"""The launcher's end of the warm process: start it, learn when it is ready, send it orders.

Holds: the process ends with this object's socket, so a dead agent leaves none behind.
"""

import json
import os
import socket
import subprocess

from trainhouse.workers.launcher.eligible import WarmFacts, start_time_environment
from trainhouse.workers.launcher.interpreters import identify
from trainhouse.workers.launcher.request import Order, in_memory, receive, send
from trainhouse.workers.readable import readable

SEND_TIMEOUT_S = 10.0
PASSED_ON = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "TZ")
# Ranks are given these too; they lead to a network and name no key of the agent's.
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class WarmProcessLostError(Exception):
    """The warm process (or the keeper that it forked) died or does not answer."""


class WarmProcess:
    """One warm process of one interpreter. Starting returns at once; `facts` tells when it is ready."""

    PROGRAM = ("-m", "trainhouse.workers.launcher.warm")

    def __init__(self, interpreter: str) -> None:
        self._identity = identify(interpreter)
        self._env = start_time_environment(os.environ) | {"PYTHONHASHSEED": "0"}
        passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        self._channel, theirs = socket.socketpair()
        self._channel.settimeout(SEND_TIMEOUT_S)
        self._facts: WarmFacts | None = None
        with theirs:
            self._process = subprocess.Popen(
                [interpreter, *self.PROGRAM, str(theirs.fileno())],
                env=passed | self._env,
                cwd="/",
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    def facts(self, wait_s: float) -> WarmFacts | None:
        """Returns the facts of the process, once it is ready; None when it is not within `wait_s` or has died. Blocks at most `wait_s`."""
        if not self.alive():
            return None
        if self._facts is None and readable(self._channel.fileno(), wait_s):
            try:
                hello = json.loads(receive(self._channel)[0])
            except (EOFError, OSError):
                return None
            self._facts = WarmFacts(self._identity, self._env, frozenset(hello["modules"]))
        return self._facts

    def send(self, order: Order, fds: tuple[int, ...]) -> None:
        """Give it an order; raises WarmProcessLostError."""
        memory = in_memory(order)
        try:
            send(self._channel, b"", (memory, *fds))
        except OSError as error:
            raise WarmProcessLostError(f"the warm process does not take orders: {error}") from error
        finally:
            os.close(memory)

    def close(self) -> None:
        """End it; its keepers and ranks stay."""
        self._channel.close()
        self._process.kill()
        self._process.wait()
