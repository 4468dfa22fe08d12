"""The browser of the tests: a real Chromium of this machine, installed by its package manager where there is none.

Holds: `executable()` finds it, or installs it as root of a Debian-like system, or says what to do.
"""

from __future__ import annotations

import os
import shutil
import subprocess

NAMES = ("chromium", "chromium-browser", "google-chrome")
ADVICE = "the tests of the pages need Chromium: install it (Debian: apt-get install chromium), or put it on PATH"


class NoBrowser(RuntimeError):
    """There is no Chromium and none could be installed."""


def executable() -> str:
    """Its path. May install it, which blocks for a minute. Raises NoBrowser."""
    found = _found()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]):
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=600, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
            )
            if done.returncode:
                raise NoBrowser(f"{ADVICE}; `{' '.join(command)}` failed: {done.stderr.strip()[-500:]}")
        found = _found()
    if found is None:
        raise NoBrowser(ADVICE)
    return found


def _found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


if __name__ == "__main__":
    print(executable())
