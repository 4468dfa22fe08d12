"""Published advisories about the pinned packages: `make audit`.

Holds: a package with an advisory that `WAIVED` does not name fails the command; advisories that cannot be reached are reported as such, and
never as a clean result.
Source: `pip-audit`, which asks the Python Packaging Advisory Database.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONSTRAINTS = Path("constraints.txt")
TIMEOUT_S = 300
FOUND, NOT_ASKED = 1, 2
# Advisory -> why it does not concern Trainhouse. An entry goes when its package is raised.
WAIVED: Mapping[str, str] = {}


@dataclass(frozen=True)
class Result:
    """Result of an audit of advisories. `found`: one line for each advisory that is not waived."""

    asked: int
    not_asked: tuple[str, ...]
    found: tuple[str, ...]
    waived: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0: every package was asked about and none has an advisory that is not waived."""
        if self.found:
            return FOUND
        return NOT_ASKED if self.not_asked else 0

    def lines(self) -> list[str]:
        """The result for a person."""
        lines = [*self.found, *self.waived, f"{self.asked} packages checked, {len(self.found)} advisories"]
        if self.not_asked:
            first = ", ".join(self.not_asked[:3])
            lines.append(
                f"{len(self.not_asked)} packages could not be checked ({first}{', …' if len(self.not_asked) > 3 else ''}): "
                "the advisories cannot be reached from here; run `make audit` where PyPI's own address can be reached"
            )
        return lines


def read(report: Mapping[str, Any], waived: Mapping[str, str]) -> Result:
    """Judges a report of `pip-audit --format json`."""
    asked, not_asked, found, passed = 0, [], [], []
    for package in report.get("dependencies", []):
        name = f"{package['name']} {package.get('version', '')}".strip()
        if "skip_reason" in package:
            not_asked.append(name)
            continue
        asked += 1
        for advisory in package.get("vulns", []):
            names = {advisory["id"], *advisory.get("aliases", [])}
            reason = next((waived[each] for each in sorted(names) if each in waived), None)
            fixed = ", ".join(advisory.get("fix_versions", [])) or "no version yet"
            line = f"{name}: {advisory['id']}, mended in {fixed}"
            if reason is None:
                found.append(line)
            else:
                passed.append(f"{line} (waived: {reason})")
    return Result(asked, tuple(not_asked), tuple(found), tuple(passed))


def main() -> None:
    """Entry point; blocks while the advisories are asked, 5 minutes at most."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(CONSTRAINTS), "--disable-pip", "--no-deps", "--format", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        report = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, json.JSONDecodeError) as error:
        print(f"the advisories could not be asked: {error}; is the network there?", file=sys.stderr)
        sys.exit(NOT_ASKED)
    result = read(report, WAIVED)
    print("\n".join(result.lines()))
    sys.exit(result.exit_code)


if __name__ == "__main__":
    main()
