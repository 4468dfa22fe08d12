"""One job's answer, before it is an event.

Holds: `key` is equal while nothing that a person would act on has changed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from trainhouse.events.model.explanation import JobExplained


@dataclass(frozen=True, slots=True)
class Answer:
    """`build` makes the whole event; it may cost milliseconds where each node is asked."""

    job_id: str
    key: object
    build: Callable[[], JobExplained]
