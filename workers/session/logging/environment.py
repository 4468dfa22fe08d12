"""Environment of this attempt: code, packages, versions, machine; captured once, by rank 0, beside training.

Holds: nothing that is asked here takes longer than a bound; what cannot be known stays empty. The job's own spec knows the code best: a
folder's git is asked only where the spec names none. Credentials in a remote's address are left out.
Never: touches a device's context, or raises.
"""

import hashlib
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from trainhouse.events.model.spec import CodeArchive

GIT_TIMEOUT_S = 5.0
MAX_DIFF_CHARS = 32_768
MAX_PACKAGES = 2_000
MAX_ARGUMENTS = 256
MAX_ARGUMENT_CHARS = 2_048
_NAME = re.compile(r"^Name:(.*)$", re.M)
_VERSION = re.compile(r"^Version:(.*)$", re.M)
Git = Callable[..., str | None]


def capture(code: CodeArchive | None, folder: Path, git: Git | None = None) -> dict[str, Any]:
    """The fields of EnvironmentCaptured, without ids and time. Blocks for up to some seconds."""
    packages = installed()
    return {
        "host": socket.gethostname()[:256],
        "command": [_text(a)[:MAX_ARGUMENT_CHARS] for a in (sys.executable, *sys.argv)][:MAX_ARGUMENTS],
        "folder": _text(str(folder))[:4096],
        **(of_archive(code) if code is not None and code.git_commit else of_folder(git or _git_in(folder))),
        **versions(),
        "platform": platform.platform()[:256],
        "devices": devices(),
        "cpus": os.cpu_count() or 0,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "packages": packages,
        "environment_id": environment_id(packages, platform.python_version()),
    }


def environment_id(packages: Mapping[str, str], python: str) -> str:
    """The same for the same packages under the same Python."""
    lines = [f"python=={python}", *(f"{name}=={packages[name]}" for name in sorted(packages))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def of_archive(code: CodeArchive) -> dict[str, Any]:
    """Returns the submission's record of its code."""
    return {"git_commit": (code.git_commit or "")[:64], "git_dirty": code.git_dirty, "git_diff_uri": (code.git_diff_uri or "")[:2048]}


def of_folder(git: Git) -> dict[str, Any]:
    """Returns git's state of a folder; nothing where it is in no repository."""
    commit = git("rev-parse", "HEAD")
    if not commit:
        return {}
    diff = git("diff", "HEAD", "--no-color", "--no-ext-diff") or ""
    return {
        "git_commit": commit.strip()[:64],
        "git_branch": (git("rev-parse", "--abbrev-ref", "HEAD") or "").strip()[:256],
        "git_remote": without_credentials((git("config", "--get", "remote.origin.url") or "").strip())[:2048],
        "git_dirty": bool(diff.strip()),
        "git_diff": diff[:MAX_DIFF_CHARS],
        "git_diff_sha256": hashlib.sha256(diff.encode()).hexdigest() if diff else "",
    }


def without_credentials(address: str) -> str:
    """`https://user:secret@host/x` as `https://host/x`."""  # pragma: allowlist secret
    return re.sub(r"^([a-z+]+://)[^/@]*@", r"\1", address)


def installed() -> dict[str, str]:
    """Versions of installed packages by name. Training runs beside this, so descriptions are not parsed: their heads are enough."""
    found = dict(_name_and_version(d) for d in metadata.distributions())
    return {name: found[name] for name in sorted(found, key=str.lower)[:MAX_PACKAGES] if name and name.isprintable()}


def _text(name: str) -> str:
    """A name of the system's, whose bytes may be no text, as one that can be told."""
    return os.fsencode(name).decode("utf-8", "replace")


def _name_and_version(package: metadata.Distribution) -> tuple[str, str]:
    try:
        text = package.read_text("METADATA") or package.read_text("PKG-INFO") or ""
    except (OSError, UnicodeDecodeError):
        return "", ""  # half removed, or of another age
    name, version = _NAME.search(text), _VERSION.search(text)
    return name[1].strip()[:250] if name else "", version[1].strip()[:250] if version else ""


def versions() -> dict[str, str]:
    """Python's, and torch's where it is loaded already."""
    torch = sys.modules.get("torch")
    cuda = getattr(getattr(torch, "version", None), "cuda", None)
    return {
        "python_version": platform.python_version(),
        "torch_version": str(getattr(torch, "__version__", "")),
        "cuda_version": str(cuda or ""),
    }


def devices() -> list[str]:
    """Names of this machine's accelerators, by the driver; none without one."""
    import pynvml

    try:
        pynvml.nvmlInit()
        found = [pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []
    return [(name.decode() if isinstance(name, bytes) else str(name))[:128] for name in found][:256]


def _git_in(folder: Path) -> Git:
    def ask(*arguments: str) -> str | None:
        command = ["git", "-C", str(folder), *arguments]
        quiet = os.environ | {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=GIT_TIMEOUT_S,
                check=False,
                env=quiet,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout if done.returncode == 0 else None

    return ask
