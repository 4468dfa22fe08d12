"""Permission of an operation: signer, addressee, age, and a check against replays.

Holds: where signatures are required, nothing is done that no known key signed; a signature counts once, and for minutes; none
counts from before the agent's start, since what it obeyed before that is not remembered. A gateway's key
vouches for its user's role, and asks for profiles and tunnels alone; an operator's key vouches for its holder. A viewer's role has neither.
Without the signature of a known key, a tunnel leads to a gateway of this node's own settings alone.
Never: trusts a name in the request for itself.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainhouse.events import AskedVia, Envelope, Event, JobSpec, OpenTunnel, ProfileRanks, RequestedBy
from trainhouse.events.runtime.watched_files import Followed
from trainhouse.events.security.signing import InvalidKeyError, Signature, checked_public_key
from trainhouse.events.tunnel.tunnel_call import address_of
from trainhouse.events.wire.topics import OPERATIONS
from trainhouse.workers.agent.errors import InvalidSettingError

GATEWAY, OPERATOR = "gateway", "operator"
ROLES_THAT_MAY = frozenset({"submitter", "operator", "admin"})
ROLES_OF_ALL_JOBS = frozenset({"operator", "admin"})
MAX_AGE_MS = 300_000
MAX_SEEN = 10_000


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A public key, what it speaks for, and its name."""

    holder: str
    name: str


def read_keys(path: Path | None) -> dict[str, KnownKey]:
    """The keys of a file, one a line: `gateway NAME KEY` or `operator NAME KEY`; '#' begins a remark. Raises InvalidSettingError."""
    if path is None:
        return {}
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise InvalidSettingError(f"the file of operations keys {path} cannot be read: {error.strerror}") from error
    found: dict[str, KnownKey] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 3 or words[0] not in (GATEWAY, OPERATOR):
            raise InvalidSettingError(f"{path}:{number}: write `gateway NAME KEY` or `operator NAME KEY`")
        try:
            found[checked_public_key(words[2])] = KnownKey(words[0], words[1])
        except InvalidKeyError as error:
            raise InvalidSettingError(f"{path}:{number}: {error}") from error
    return found


class ListedKeys(Mapping[str, KnownKey]):
    """The keys of a file as it is now: who is added is obeyed, who is taken out is not, without a restart."""

    def __init__(self, path: Path) -> None:
        """Raises InvalidSettingError."""
        self._followed = Followed((path,), lambda: read_keys(path))

    def __getitem__(self, public_key: str) -> KnownKey:
        return self._followed.now()[public_key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._followed.now())

    def __len__(self) -> int:
        return len(self._followed.now())


@dataclass(frozen=True, slots=True)
class Judged:
    """Decision about an operation. `requester`: empty where nothing could be believed; `why`: the evidence."""

    refusal: str = ""
    requester: str = ""
    why: str = ""


@dataclass(slots=True)
class Permission:
    """One agent's. `required`: what is not signed is refused. `started_ms`: when this agent began to remember what it obeyed."""

    keys: Mapping[str, KnownKey]
    required: bool
    started_ms: int = 0
    gateways: tuple[str, ...] = ()
    """Addresses that this agent calls for requests that no known key signed."""
    _seen: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def judged(self, envelope: Envelope, value: bytes, signature: Signature | None, now_ms: int) -> Judged:
        """Judges a request, for the audit too."""
        refusal = self.refusal(envelope, value, signature, now_ms)
        asked = getattr(envelope.event, "requested_by", None)
        claimed = asked.name if asked is not None else ""
        claim = f"; it says that {claimed} asks" if claimed else ""
        key = self.keys.get(signature.public_key) if signature is not None and signature.holds(OPERATIONS, value) else None
        if key is None:
            why = f"{refusal}{claim}" if refusal else "not signed by a known key, which this node allows: the name is what the request says"
            return Judged(refusal, "" if refusal else claimed, why)
        if key.holder == OPERATOR:
            return Judged(refusal, key.name, refusal + claim if refusal else f"signed with the operations key {key.name}{claim}")
        role = asked.role if asked is not None else ""
        return Judged(refusal, claimed, refusal or f"the gateway {key.name} signed it for a {role}")

    def refusal(self, envelope: Envelope, value: bytes, signature: Signature | None, now_ms: int) -> str:
        """Returns the reason that the agent refuses the request; empty if it is allowed."""
        if signature is None:
            return (
                self._by_address(envelope.event)
                if not self.required
                else "it is not signed, and this node wants a signature: ask with an operations key, or for a profile by the gateway"
            )
        key = self.keys.get(signature.public_key)
        if key is None:
            return (
                self._by_address(envelope.event)
                if not self.required
                else "the key that signed it is not one of this node's operations keys"
            )
        if not signature.holds(OPERATIONS, value):
            return "its signature does not hold: it was changed on the way, or made for something else"
        return self._by_role(key, envelope.event, getattr(envelope.event, "requested_by", None)) or self._by_time(envelope, now_ms)

    def _by_role(self, key: KnownKey, event: Event, asked: RequestedBy | None) -> str:
        if key.holder == OPERATOR:
            return ""
        if not isinstance(event, ProfileRanks | OpenTunnel):
            return f"the gateway {key.name} asks for profiles and tunnels alone: for stacks and commands ask with an operations key"
        if asked is None or asked.via is not AskedVia.GATEWAY:
            return f"the gateway {key.name} signed it and does not say for whom"
        if asked.role not in ROLES_THAT_MAY:
            return f"{asked.name} is a {asked.role or 'user without a role'}: only a submitter, an operator or an admin may"
        return ""

    def _by_address(self, event: Event) -> str:
        if not isinstance(event, OpenTunnel) or (asked := address_of(event.url)) in {address_of(url) for url in self.gateways} - {None}:
            return ""
        known = ", ".join(self.gateways) or "none"
        return (
            f"no known key signed it, and {event.url if asked else 'what it names'} is no gateway of this node's settings ({known}): its "
            "operator adds the address to TRAINHOUSE_AGENT_TUNNEL_GATEWAYS, or lists the gateway's operations key"
        )

    def _by_time(self, envelope: Envelope, now_ms: int) -> str:
        if envelope.time_ms is None or abs(now_ms - envelope.time_ms) > MAX_AGE_MS:
            return f"it was signed more than {MAX_AGE_MS // 60_000} minutes ago by this node's clock, or ahead of it"
        if envelope.time_ms < self.started_ms:
            return "it was signed before this agent started: ask again"
        while self._seen and next(iter(self._seen.values())) < now_ms - 3 * MAX_AGE_MS:
            self._seen.popitem(last=False)
        if str(envelope.id) in self._seen:
            return "it was asked before: each request counts once"
        if len(self._seen) >= MAX_SEEN:
            return "too many requests in these minutes"
        self._seen[str(envelope.id)] = now_ms
        return ""


def tunnel_refusal(spec: JobSpec, asked: RequestedBy | None) -> str:
    """Returns the reason that a user is not connected with a job; empty if it is allowed. Its shell has the rights of its user."""
    if spec.interactive is None:
        return "the job is not interactive"
    if asked is None or asked.via is not AskedVia.GATEWAY:
        return "no gateway says for whom"
    if asked.name != spec.user and asked.role not in ROLES_OF_ALL_JOBS:
        return f"the job is {spec.user}'s, and {asked.name} is neither that user nor an operator"
    return ""
