"""Findings of `trainhouse doctor`, each a sentence: what, where, and for a fault what to do.

Holds: pure; no URL in a text has an account in it; the exit code follows from the findings alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from trainhouse.cli.shared.exit_codes import Exit
from trainhouse.url_accounts import without_account

GIB: Final = 2**30
LEAST_DISK_BYTES, LEAST_MEMORY_BYTES = 5 * GIB, 2 * GIB
MOST_CLOCK_S: Final = 2.0
LEAST_PYTHON: Final = (3, 11)


class Verdict(StrEnum):
    """Gravity of a finding. A FAULT makes the exit code 1."""

    OK = "OK"
    WARNING = "WARNING"
    FAULT = "FAULT"


@dataclass(frozen=True)
class Finding:
    """One check's outcome. `part`: machine, deployment or spec; `subject`: what was checked."""

    part: str
    subject: str
    verdict: Verdict
    text: str


def exit_of(found: Sequence[Finding]) -> Exit:
    """1 if something is a fault, else 0."""
    return Exit.FAILED if any(each.verdict is Verdict.FAULT for each in found) else Exit.OK


def ok(part: str, subject: str, text: str) -> Finding:
    """A finding of something that is as it should be."""
    return Finding(part, subject, Verdict.OK, without_account(text))


def warning(part: str, subject: str, text: str) -> Finding:
    """A finding that hinders nothing yet."""
    return Finding(part, subject, Verdict.WARNING, without_account(text))


def fault(part: str, subject: str, text: str) -> Finding:
    """A finding that keeps jobs from running."""
    return Finding(part, subject, Verdict.FAULT, without_account(text))


def python_version(version: tuple[int, int, int], executable: str) -> Finding:
    """The interpreter's version."""
    text = f"Python {'.'.join(map(str, version))} at {executable}"
    if version[:2] < LEAST_PYTHON:
        return fault("machine", "python", f"{text} is too old: make the environment with Python 3.11 or newer")
    return ok("machine", "python", text)


def torch_of(report: Mapping[str, Any] | None, problem: str, gpus: int) -> list[Finding]:
    """PyTorch and its devices. `report`: version, cuda (None without), devices; None if it cannot be imported; `gpus`: NVIDIA devices."""
    if report is None:
        return [fault("machine", "torch", f"PyTorch cannot be imported here ({problem}): run `pip install torch` in this environment")]
    version, cuda, devices = report["version"], report["cuda"], report["devices"]
    found = [ok("machine", "torch", f"PyTorch {version}")]
    if gpus and not cuda:
        text = f"this machine has {gpus} NVIDIA devices, and PyTorch {version} is built without CUDA: install a build with CUDA"
        return [*found, fault("machine", "cuda", text)]
    if gpus and not devices:
        text = f"this machine has {gpus} NVIDIA devices, and PyTorch sees none: compare the driver (`nvidia-smi`) with CUDA {cuda}"
        return [*found, fault("machine", "cuda", text)]
    if devices:
        return [*found, ok("machine", "cuda", f"CUDA {cuda}, {devices} devices")]
    return [*found, ok("machine", "cuda", "no NVIDIA device: ranks run on cpu slots")]


def disk(folder: str, free_bytes: int) -> Finding:
    """Room on the disk of a folder."""
    text = f"{free_bytes / GIB:.1f} GiB are free at {folder}"
    if free_bytes < LEAST_DISK_BYTES:
        return warning("machine", "disk", f"{text}, less than {LEAST_DISK_BYTES / GIB:.0f}: make room, or use another folder by --data-dir")
    return ok("machine", "disk", text)


def memory(available_bytes: int) -> Finding:
    """Memory that processes may have."""
    text = f"{available_bytes / GIB:.1f} GiB of memory are available"
    if available_bytes < LEAST_MEMORY_BYTES:
        return warning("machine", "memory", f"{text}, less than the {LEAST_MEMORY_BYTES / GIB:.0f} of a stack: end other programs")
    return ok("machine", "memory", text)


def ports(taken: Sequence[int], first: int, last: int) -> Finding:
    """The ports that `trainhouse up` would take."""
    if taken:
        listed = ", ".join(map(str, taken[:5])) + (" …" if len(taken) > 5 else "")
        text = f"of ports {first} to {last} others listen on {listed}: `trainhouse up --ports auto` takes free ones"
        return warning("machine", "ports", text)
    return ok("machine", "ports", f"ports {first} to {last} are free for `trainhouse up`")


def clock(is_synchronised: bool | None) -> Finding:
    """The kernel's clock; None: the kernel does not say."""
    if is_synchronised is None:
        return ok("machine", "clock", "whether the clock is synchronised is not known here")
    if not is_synchronised:
        text = (
            "the kernel's clock is not synchronised: start chrony, ntpd or systemd-timesyncd, or times of events will differ between nodes"
        )
        return warning("machine", "clock", text)
    return ok("machine", "clock", "the clock is synchronised")


def clock_difference(ahead_s: float, place: str) -> Finding:
    """This machine's clock beside a server's, whose answers have whole seconds."""
    if abs(ahead_s) > MOST_CLOCK_S:
        where = "ahead of" if ahead_s > 0 else "behind"
        return warning("deployment", "clock", f"this clock is {abs(ahead_s):.0f} s {where} that of {place}: synchronise both")
    return ok("deployment", "clock", f"this clock and that of {place} differ by less than {MOST_CLOCK_S:.0f} s")


def topics(needed: Sequence[str], counts: Mapping[str, int], refusal: str, bootstrap: str) -> list[Finding]:
    """The topics on the brokers. `refusal`: the sentence on partitions that differ, or empty."""
    missing = [name for name in needed if name not in counts]
    if missing:
        listed = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        text = f"Kafka at {bootstrap} has no topic {listed}: start intake once, which makes them, or look at this account's grants"
        return [fault("deployment", "topics", text)]
    found = [ok("deployment", "topics", f"all {len(needed)} topics are there")]
    return [*found, fault("deployment", "topics", refusal)] if refusal else found


def versions(releases: Mapping[str, Sequence[str]]) -> Finding:
    """Releases of the control plane's programs. `releases`: processes by release."""
    named = "; ".join(f"{release or 'unknown'}: {', '.join(sorted(set(processes)))}" for release, processes in sorted(releases.items()))
    if len(releases) > 1:
        return warning(
            "deployment", "versions", f"programs of {len(releases)} releases run ({named}): `trainhouse upgrade status` shows why"
        )
    return ok("deployment", "versions", f"one release runs ({named})" if named else "no program announced its release yet")


def room_of(spec: Any, pools: Sequence[Mapping[str, Any]]) -> Finding:
    """Whether the fleet can ever hold a spec's gang. `spec`: a JobSpec; `pools`: those of the fleet, with their devices by type."""
    pool = next((row for row in pools if row["pool"] == spec.pool), None)
    if pool is None:
        known = ", ".join(sorted(str(row["pool"]) for row in pools)) or "none"
        return fault("spec", "fleet", f"there is no pool {spec.pool}: name one of {known}, or create it by `trainhouse pool create`")
    ranks, wanted = spec.gang.ranks, spec.resources.device_type
    fitting = {kind: row["total"] for kind, row in pool["devices"].items() if wanted in ("any", kind)}
    most = max(fitting.values(), default=0)
    if most < ranks:
        has = ", ".join(f"{row['total']} {kind}" for kind, row in pool["devices"].items()) or "no devices"
        text = f"the gang needs {ranks} devices of type {wanted}, and pool {spec.pool} has {has}: ask for fewer, or add nodes"
        return fault("spec", "fleet", text)
    free = max(row["free"] for kind, row in pool["devices"].items() if kind in fitting)
    when = "now" if free >= ranks else f"later: {free} are free now"
    return ok("spec", "fleet", f"pool {spec.pool} has {most} devices of type {wanted} for {ranks} ranks; it can start {when}")
