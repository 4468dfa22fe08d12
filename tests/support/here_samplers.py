"""Samplers in this process, in place of one of their own; each suggestion takes as long as a test says, or ends as it says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from trainhouse.scheduler.stream.studies.optuna_sampler import suggest
from trainhouse.scheduler.stream.studies.suggestion_frames import Answer, Question

ASKING_S = 0.001


@dataclass
class HereSamplers:
    """`lasts_s`: seconds of a suggestion, or an exception that is raised; `asked`: the questions."""

    lasts_s: Callable[[Question], float] = field(default=lambda _: 0.0)
    asked: list[Question] = field(default_factory=list)

    async def suggest(self, question: Question) -> Answer:
        self.asked.append(question)
        await asyncio.sleep(ASKING_S)
        seconds = self.lasts_s(question)
        await asyncio.sleep(seconds)
        return Answer(suggest(question.spec, question.trials, question.number), seconds)

    async def end(self) -> None:
        """Nothing is to end."""
