"""Errors of events. A small tree: everything is an EventError.

Holds: every message names the event or field, the cause, and what to change.
"""


class EventError(Exception):
    """Base of all errors of the event contract."""


class InvalidEvent(EventError):
    """The bytes are no valid event of a known type; retrying the same bytes cannot help.

    `job_id` is set when it could be read all the same, so that the producer can be told; `event_id` likewise.
    """

    def __init__(self, message: str, *, job_id: str | None = None, event_id: str | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.event_id = event_id


class UnknownEventType(InvalidEvent):
    """The type string (or its version) is not one that this program knows."""


class BusUnavailableError(EventError):
    """The brokers did not answer in time; retryable."""


class RecordsGoneError(EventError):
    """A topic no longer holds the records that were to be read: they expired, or were trimmed."""


class TopicsDifferError(EventError):
    """The brokers' topics, or the settings, have other counts of partitions than were recorded when the topics were made."""
