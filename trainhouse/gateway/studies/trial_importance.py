"""Importance of a study's parameters, computed in a process of its own.

Holds: at most PROCESSES at once, each ended after LONGEST_S; the newest answers are kept, so that pages that ask again cost nothing; the
gateway itself imports no Optuna.
Never: raises for what Optuna does; the answer's `reason` has it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final

import orjson

LEAST_TRIALS: Final = 10
"""Complete trials from which importance is computed: the best tenth of fewer is no trial."""
LONGEST_S: Final = 30.0
PROCESSES: Final = 2
MOST_KEPT: Final = 64
MODULE: Final = "trainhouse.gateway.studies.importance_process"


def reason_for_none(trials: int) -> str:
    """Returns why so many complete trials have no importance; empty: they may."""
    return f"it takes {LEAST_TRIALS} complete trials to judge parameters, and there are {trials}" if trials < LEAST_TRIALS else ""


class Importances:
    """Computes importance, and keeps the newest answers. Its methods are called on the event loop."""

    def __init__(self, longest_s: float = LONGEST_S) -> None:
        self._longest_s = longest_s
        self._at_once = asyncio.Semaphore(PROCESSES)
        self._kept: OrderedDict[bytes, dict[str, Any]] = OrderedDict()

    async def of(self, spec: Mapping[str, Any], metric: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Returns `items`, `left_out` and `reason`. `rows`: `figure` and `parameters`, as JSON, of each complete trial."""
        reason = reason_for_none(len(rows))
        if reason:
            return _none(reason)
        asked = await asyncio.to_thread(_request, spec, metric, rows)
        key = sha256(asked).digest()
        if key not in self._kept:
            async with self._at_once:
                found = await self._computed(asked, len(rows))
            if found["reason"]:
                return found
            self._kept[key] = found
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    async def _computed(self, asked: bytes, trials: int) -> dict[str, Any]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", MODULE, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            answer, complaint = await asyncio.wait_for(process.communicate(asked), self._longest_s)
        except TimeoutError:
            return _none(f"it took longer than {self._longest_s:g} s for {trials} trials, and was ended")
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if process.returncode:
            lines = complaint.decode(errors="replace").strip().splitlines()
            return _none(f"it could not be computed: {lines[-1] if lines else f'the process ended with {process.returncode}'}"[:500])
        found: dict[str, Any] = orjson.loads(answer)
        return found


def _request(spec: Mapping[str, Any], metric: str, rows: Sequence[Mapping[str, Any]]) -> bytes:
    # The JSON of each trial goes as it is.
    values = [orjson.Fragment(row["parameters"] or "{}") for row in rows]
    return orjson.dumps({"spec": spec, "metric": metric, "figures": [row["figure"] for row in rows], "parameters": values})


def _none(reason: str) -> dict[str, Any]:
    return {"items": [], "left_out": [], "reason": reason}
