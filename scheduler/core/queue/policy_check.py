"""Checks of a policy against a fleet: device types that no node has, topology levels that no node reports.

Holds: a policy without faults can be obeyed by the pool as it is now. A pool without nodes cannot judge: nothing is refused there.
Never: changes the policy, or drops the part that is at fault.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from trainhouse.events.model.policy import SchedulingPolicy
from trainhouse.scheduler.core.cluster.shape import ANY

ALWAYS_LEVELS = ("node",)
"""Levels that every node has without telling."""
MAX_SHOWN = 20


@dataclass(frozen=True, slots=True)
class PolicyFault:
    """Fault in a policy and its field: the keys and indexes that lead there."""

    field: tuple[str | int, ...]
    problem: str

    @property
    def path(self) -> str:
        """The field as people write it: teams[2].limit.h100."""
        return field_path(self.field)

    def text(self, line: int | None = None) -> str:
        """For example: line 12: teams[2].limit.h800: no node of this pool …"""
        return f"line {line}: {self.path}: {self.problem}" if line else f"{self.path}: {self.problem}"


def field_path(field: Iterable[str | int]) -> str:
    """Keys and indexes as people write them: teams[2].limit.h100; the whole policy is "policy"."""
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in field)
    return path.lstrip(".") or "policy"


def check_against(policy: SchedulingPolicy, device_types: Collection[str], levels: Collection[str]) -> tuple[PolicyFault, ...]:
    """Every fault of a policy for a pool whose nodes have these device types and report these topology levels. Empty: it can be obeyed."""
    if not device_types:
        return ()
    known = sorted({*device_types} - {ANY})
    faults: list[PolicyFault] = []
    for index, team in enumerate(policy.teams):
        for field, amounts in (("guaranteed", team.guaranteed), ("limit", team.limit)):
            for device_type in sorted(amounts):
                if device_type != ANY and device_type not in known:
                    problem = f"no node of this pool has a device of type {device_type}; it has {_some(known)}"
                    faults.append(PolicyFault(("teams", index, field, device_type), problem))
    prefer, reported_levels = policy.topology.prefer, sorted({*levels, *ALWAYS_LEVELS})
    if prefer is not None and prefer not in reported_levels:
        problem = f"no node of this pool tells a topology level {prefer}; they tell {_some(reported_levels)}"
        faults.append(PolicyFault(("topology", "prefer"), problem))
    return tuple(faults)


def _some(names: list[str]) -> str:
    more = len(names) - MAX_SHOWN
    return ", ".join(names[:MAX_SHOWN]) + (f" and {more} more" if more > 0 else "")
