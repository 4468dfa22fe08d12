"""Audit of a node: commands, stacks and secrets that were asked for, the decision, and the end of each access.

Holds: what is let in is told before it begins; refusals beyond REFUSALS_PER_MINUTE are counted, and told as one with the next that may be
told, so that the counts add up. A command is told without the secrets that are known here and without what looks like one; where those
that are known cannot be read, not at all.
Never: the value of a secret.
"""

import hashlib
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainhouse.events import DumpStacks, GangAllocated, NodeAccess, OpenTunnel, OperationRequest, ProfileRanks
from trainhouse.events.model.node_audit import Outcome
from trainhouse.events.runtime.counts import MINUTE_MS, TOGETHER, PerMinute, within
from trainhouse.events.security.masked_commands import masked_command

EXEC, SECRET = "exec", "secret"  # pragma: allowlist secret
MAX_TEXT_CHARS = 65_536
MAX_RANKS = 1024
REFUSALS_PER_MINUTE = 120
WITHHELD = "not shown: the job's secrets could not be read, so they could not be masked in it"

Emit = Callable[[NodeAccess], None]


@dataclass(frozen=True)
class Asker:
    """Requester as far as it is believed, the evidence for that, and its host."""

    name: str = ""
    why: str = ""
    host: str = ""


UNKNOWN = Asker()


@dataclass(frozen=True)
class Access:
    """Granted access, whose end is still to be audited."""

    audit: "NodeAudit"
    event: NodeAccess

    def ended(self, ranks: Iterable[int], exit_code: int | None, size_bytes: int, reason: str = "") -> None:
        """Audits the end of the access, or that of some of its ranks."""
        now_ms = self.audit.clock_ms()
        more = {"ranks": tuple(ranks), "exit_code": exit_code, "size_bytes": size_bytes, "reason": reason[:1024]}
        more |= {"outcome": Outcome.ENDED, "at_ms": now_ms, "since_ms": now_ms, "took_ms": max(0, now_ms - self.event.at_ms)}
        self.audit.emit(self.event.model_copy(update=more | {"text": "", "text_sha256": ""}))


@dataclass
class NodeAudit:
    """Audit of one node's accesses. `emit` is called from several threads."""

    node_id: str
    emit: Emit
    clock_ms: Callable[[], int]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _rate: PerMinute = field(default_factory=lambda: PerMinute(REFUSALS_PER_MINUTE))
    _held: int = 0
    _held_since_ms: int = 0

    def granted(self, access: str, action: str, asker: Asker, **about: Any) -> Access:
        """Audits an access that is about to happen."""
        event = self._event(Outcome.GRANTED, access, action, asker, about, self.clock_ms())
        self.emit(event)
        return Access(self, event)

    def refused(self, access: str, action: str, asker: Asker, **about: Any) -> None:
        """Audits a refusal, or counts it beyond the rate limit."""
        now_ms = self.clock_ms()
        with self._lock:
            if not self._rate.may(now_ms):
                self._held_since_ms = self._held_since_ms if self._held else now_ms
                self._held += 1
                return
        self.turn(now_ms, at_once=True)
        self.emit(self._event(Outcome.REFUSED, access, action, asker, about, now_ms))

    def turn(self, now_ms: int, *, at_once: bool = False) -> None:
        """Publishes the counted refusals; to be called now and then."""
        with self._lock:
            count, since_ms = self._held, self._held_since_ms
            if not count or (not at_once and within(MINUTE_MS, since_ms, now_ms)):
                return
            self._held = 0
        asker = Asker(why=TOGETHER)
        self.emit(self._event(Outcome.REFUSED, "", "many", asker, {"count": count, "since_ms": since_ms}, now_ms))

    def _event(self, outcome: Outcome, access: str, action: str, asker: Asker, about: dict[str, Any], now_ms: int) -> NodeAccess:
        fields = {"at_ms": now_ms, "since_ms": now_ms, "outcome": outcome, "access": access, "action": action, "node_id": self.node_id}
        fields |= {"sub": asker.name[:128], "reason": asker.why[:1024], "address": asker.host[:64], "access_id": secrets.token_hex(8)}
        return NodeAccess.model_validate(fields | about)


def about_operation(request: OperationRequest, allocation: GangAllocated | None, ranks: Iterable[int], text: str) -> dict[str, Any]:
    """Returns the targets of an operation, as the audit takes them; its rows of all nodes go by the request's id."""
    asked = tuple(ranks)[:MAX_RANKS]
    place = f"{request.job_id}/{request.node_id}" + (f"/{asked[0]}" if len(asked) == 1 else "")
    job: dict[str, Any] = {"job_id": request.job_id, "target": place[:256], "ranks": asked, "access_id": request.request_id[:64]}
    if allocation is not None:
        job |= {"attempt": int(allocation.attempt), "project": allocation.spec.project}
    return job | cut_text(text)


def about_secrets(allocation: GangAllocated, names: Mapping[str, str]) -> tuple[Asker, dict[str, Any]]:
    """Returns the receivers of secrets and their targets; `names`: each with where it is."""
    spec = allocation.spec
    text = ", ".join(f"{name} ({kind})" if kind else name for name, kind in names.items())
    job = {"job_id": allocation.job_id, "target": str(allocation.job_id)[:256], "attempt": int(allocation.attempt), "project": spec.project}
    return Asker(spec.user, f"a job of project {spec.project} names them"), job | cut_text(text)


def command_text(request: OperationRequest, known: Iterable[str] | None) -> str:
    """The command, masked; `known`: the job's secrets, None where they could not be read."""
    if isinstance(request, DumpStacks | OpenTunnel):
        return ""
    if isinstance(request, ProfileRanks):
        return f"{request.steps} steps"
    if known is None:
        return WITHHELD
    # Only here: commands about secrets have no need of the launcher's package.
    from trainhouse.workers.launcher.masker import Masker

    masker = Masker(known)
    words = []
    for word in request.command:
        raw = masker.feed(word.encode("utf-8", "surrogateescape")) + masker.flush()
        words.append(raw.decode("utf-8", "replace"))
        masker = Masker(known)
    return masked_command(words)


def cut_text(text: str) -> dict[str, str]:
    """A text as an event takes it: both of its ends, and the hash of the whole, where it is too long."""
    if len(text) <= MAX_TEXT_CHARS:
        return {"text": text}
    half = MAX_TEXT_CHARS // 2
    return {"text": f"{text[:half]}…{text[1 - half :]}", "text_sha256": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()}
