"""The scheduler: from the book to actions. The machine of the journal gives it a fork, the simulator its own book.

In each pool that changed: gangs whose claimed devices are free start; waiting gangs start, or get a promised start, in the order of the
policy; then others may be asked to leave for those who still wait; then elastic gangs grow; then gangs move.

Holds: the same book and time give the same actions; afterwards the book is as if they were applied; a second look at the same time finds
nothing more to start.
Never: reads a clock; looks at a pool where nothing changed and no time has passed.
"""

from trainhouse.scheduler.core.cycle.book import Book
from trainhouse.scheduler.core.cycle.claims import start_claimed
from trainhouse.scheduler.core.cycle.entries import Action
from trainhouse.scheduler.core.cycle.placing import place_waiting


def run_cycle(book: Book, now_ms: int) -> list[Action]:
    """One cycle over all pools; `now_ms` never goes back."""
    actions: list[Action] = []
    for pool in book.pools():
        if book.due(pool, now_ms):
            actions.extend(_in_pool(book, pool, now_ms))
            book.marks.settle(pool, now_ms)
    return actions


def _in_pool(book: Book, pool: str, now_ms: int) -> list[Action]:
    actions = start_claimed(book, pool, now_ms) if book.claims else []
    actions.extend(place_waiting(book, pool, now_ms))
    return actions
