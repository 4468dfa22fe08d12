"""The platform's objectives: target, what was reached, what is left of the budget, and how fast it burns."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request

from trainhouse.gateway.answers import Json
from trainhouse.gateway.auth.authentication import Viewer
from trainhouse.gateway.context import Gateway, Here
from trainhouse.projections.alerts.query import moment
from trainhouse.projections.slo.attainment import AGE_QUESTION, as_row, question, standing_of
from trainhouse.projections.slo.targets import Target, shipped

router = APIRouter(prefix="/v1", tags=["fleet"])

KEPT_S = 30.0
AT_ONCE = 2


@dataclass
class Kept:
    """The newest answer: whoever asks meanwhile gets it too, since it reads a month."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    asked_s: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@router.get("/slo")
async def slo(here: Here, request: Request, _: Viewer) -> Json:
    """Each objective over its window; at most half a minute old. `met` is null where nothing was counted; `budget_left` is 1 for all.

    `too_young` names the spans of `burn_rates` that are longer than the stack is old (`age_s`, null: it has decided nothing yet)."""
    kept = _kept(request)
    async with kept.lock:
        if time.monotonic() - kept.asked_s > KEPT_S:
            kept.rows = await _ask(here)
            kept.asked_s = time.monotonic()
    return Json({"items": kept.rows, "next_cursor": None})


def _kept(request: Request) -> Kept:
    state = request.app.state
    if not isinstance(getattr(state, "slo", None), Kept):
        state.slo = Kept()
    kept: Kept = state.slo
    return kept


async def _ask(here: Gateway) -> list[dict[str, Any]]:
    targets = await asyncio.to_thread(shipped)
    now = moment(time.time_ns() // 1_000_000)
    (age,) = await here.reader.rows(AGE_QUESTION, {"now": now})
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(target: Target) -> dict[str, Any]:
        async with turns:
            (row,) = await here.reader.rows(question(target), {"now": now})
        return as_row(standing_of(target, row | age))

    return list(await asyncio.gather(*(one(target) for target in targets)))
