"""Audit of `trainhouse secrets`: changes, listings and refusals on this machine.

Holds: a change is on the disk here before it happens, in a file beside the secrets, and goes to the brokers when they can be reached: now,
or with the next command. A change that cannot be told there is not made. At most MAX_KEPT_BYTES wait.
Never: a value.
"""

from __future__ import annotations

import fcntl
import getpass
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from trainhouse.cli.shared.exit_codes import CliError, Exit

if TYPE_CHECKING:
    from pathlib import Path

    from trainhouse.events import Envelope
    from trainhouse.workers.agent.settings import AgentSettings

UNSENT = ".audit-unsent.jsonl"
MAX_KEPT_BYTES = 16 * 1024 * 1024
FLUSH_S = 5.0
SOURCE = "trainhouse/cli"


class CommandAudit:
    """One command's. `about`: which secret, known sooner or later; `granted` is called just before something changes."""

    def __init__(self, settings: AgentSettings, action: str) -> None:
        from trainhouse.workers.agent.accesses import Asker, NodeAudit

        assert settings.secrets_dir is not None, "resolved() fills it in"
        self._settings = settings
        self._file = settings.secrets_dir / UNSENT
        self._action = action
        self._asker = Asker(user(), f"runs commands on this machine, as uid {os.getuid()}", socket.gethostname())
        self._audit = NodeAudit(str(settings.node_id), lambda event: self._keep(event), lambda: time.time_ns() // 1_000_000)
        self._access: Any = None
        self.about: dict[str, Any] = {}

    def named(self, target: str, project: str, text: str = "") -> None:
        """Sets the secret that it is about."""
        self.about = {"target": target[:256], "project": project[:128], "text": text[:65_536]}

    def granted(self) -> None:
        """It is about to happen. Raises CliError where that cannot be kept."""
        from trainhouse.workers.agent.accesses import SECRET

        try:
            self._access = self._audit.granted(SECRET, self._action, self._asker, **self.about)
        except OSError as error:
            raise CliError(f"nothing was changed: the audit of it cannot be kept in {self._file}: {error.strerror}", Exit.FAILED) from error

    def failed(self, reason: str) -> None:
        """It was refused, or did not go as asked."""
        from dataclasses import replace

        from trainhouse.workers.agent.accesses import SECRET

        with suppress(OSError):
            if self._access is not None:
                self._access.ended((), None, 0, f"not done: {reason}")
            else:
                self._audit.refused(SECRET, self._action, replace(self._asker, why=reason), **self.about)

    def send(self) -> None:
        """Sends what is kept, as far as the brokers take it; the rest waits."""
        from trainhouse.events.model.errors import BusUnavailableError

        with suppress(OSError), _opened(self._file) as kept:
            waiting = [envelope for line in kept.read().splitlines() if (envelope := _read(line)) is not None]
            try:
                _send(waiting, self._settings.dir)
            except (BusUnavailableError, BufferError) as error:
                sys.stderr.write(f"the audit of it waits in {self._file}: {error}; the next `trainhouse secrets` command sends it\n")
                return
            kept.truncate(0)

    def _keep(self, event: Any) -> None:
        from trainhouse.events import encode, envelope_of

        event_id = f"{event.node_id}:access:{event.access_id}:{event.outcome}"
        line = encode(envelope_of(event, id=event_id, source=SOURCE, now_ms=event.at_ms)) + b"\n"
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _opened(self._file) as kept:
            size = os.fstat(kept.fileno()).st_size
            if size + len(line) > MAX_KEPT_BYTES:
                raise OSError(0, f"{MAX_KEPT_BYTES // 2**20} MiB wait there already, and the brokers do not take them")
            # What was cut off there (a full disk) must not make one line with this.
            kept.write(b"\n" + line if _is_cut(kept, size) else line)
            kept.flush()
            os.fsync(kept.fileno())


@contextmanager
def audited(action: str) -> Iterator[CommandAudit]:
    """Audits one command; an exception that it raises is recorded as a refusal."""
    from trainhouse.workers.agent.settings import AgentSettings

    audit = CommandAudit(AgentSettings().resolved(), f"secrets {action}")
    try:
        yield audit
    except CliError as error:
        audit.failed(str(error))
        raise
    except Exception as error:
        audit.failed(type(error).__name__)
        raise
    finally:
        audit.send()


def user() -> str:
    """Returns the name of the uid that runs this."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return getpass.getuser()


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file of what waits, for this process alone."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        yield file


def _is_cut(kept: Any, size: int) -> bool:
    """Returns whether the last line has no end."""
    kept.seek(max(0, size - 1))
    return kept.read(1) not in (b"", b"\n")


def _read(line: bytes) -> Envelope | None:
    from trainhouse.events import InvalidEvent, decode

    try:
        return decode(line)
    except InvalidEvent:  # a line that was cut off: its change did not happen
        return None


def _send(waiting: list[Envelope], folder: Path) -> None:
    """Signed with the node's key, where this machine's agent has one that we may read. Blocks. Raises BusUnavailableError."""
    from trainhouse.events.bus.kafka import ONE_SHOT, EventProducer
    from trainhouse.events.security.key_files import read_key
    from trainhouse.events.security.signing import InvalidKeyError
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.events.wire.topics import NODE_AUDIT
    from trainhouse.workers.agent.settings import NODE_KEY

    if not waiting:
        return
    producer = EventProducer(KafkaSettings(), **ONE_SHOT, log_level=0)
    with suppress(InvalidKeyError):
        producer.signing = read_key(folder / NODE_KEY)
    for envelope in waiting:
        producer.send(NODE_AUDIT, envelope)
    producer.flush(FLUSH_S)
