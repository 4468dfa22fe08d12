"""Answers about studies with the tuner's machine behind them, in place of Kafka."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.study_requests import Tuner
from tests.support.tables.alert_tables import Tables
from trainhouse.events import Event, StudyBegun, StudyChanged, StudyRequestRefused, StudyStatus
from trainhouse.events.model.study import StudyRequest
from trainhouse.events.wire import topics
from trainhouse.gateway.bus import Bus, Sent
from trainhouse.gateway.studies.study_answers import StudyAnswer, StudyAnswers, StudyRefusedError


class StudyBook(StudyAnswers):
    """Asks the tuner's machine; what it decides is in `tables`. `asked` are the requests that came."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(None)
        self.tuner = Tuner()
        self.tables = tables
        self.asked: list[StudyRequest] = []

    def publish(self, decided: Sequence[Event]) -> None:
        """Puts decisions and statuses where their topics are read to."""
        self.tables.put(topics.STUDY_HISTORY, [each for each in decided if not isinstance(each, StudyStatus)])
        self.tables.put(topics.STUDIES, [each for each in decided if isinstance(each, StudyStatus)])

    async def ask(self, bus: Bus, event: StudyRequest, event_id: str) -> tuple[StudyAnswer, Sent]:
        self.asked.append(event)
        decided = self.tuner.ask(event, event_id)
        self.publish(decided)
        answers = (each for each in decided if isinstance(each, StudyBegun | StudyChanged | StudyRequestRefused))
        answer = next(each for each in answers if each.request_id == event_id)
        if isinstance(answer, StudyRequestRefused):
            raise StudyRefusedError(answer.reason)
        return answer, await bus.send(topics.STUDY_REQUESTS, event, event_id)
