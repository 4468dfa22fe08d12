"""Records carry the brokers' time, on every topic: no producer's clock gets one refused or expired."""

from trainhouse.events.wire.project_topics import jobs_topic, rows_of, status_topic
from trainhouse.events.wire.topics import LOG_TIME, TOPICS


def test_each_topic_takes_the_time_of_its_broker() -> None:
    for row in (*TOPICS, *rows_of([jobs_topic("p"), status_topic("p")])):
        assert LOG_TIME.items() <= row.config().items() and LOG_TIME.items() <= row.extra.items(), row.name


def test_the_topics_of_projects_are_known_among_others() -> None:
    names = [jobs_topic("vision"), status_topic("speech-2"), "trainhouse.jobs", "trainhouse.jobs.", "trainhouse.jobs.a.b", "other.jobs.p"]
    assert [row.name for row in rows_of(names)] == [jobs_topic("vision"), status_topic("speech-2")]
