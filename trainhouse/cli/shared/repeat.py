"""A command's work again and again, as a service, until SIGTERM.

Holds: what passes by itself (brokers, store or tables away) is a line for people, and the work is tried again; what else it raises ends it.
Two of the same service drift apart, since no wait is quite as long as the one before.
"""

import random
import time
from collections.abc import Callable
from typing import Final

SPREAD: Final = 0.1
"""How much longer or shorter than asked a wait may be, as a part of it."""


def wait_of(every_s: float, drawn: float) -> float:
    """Seconds until the next pass, about `every_s`. `drawn`: from 0 to 1."""
    return every_s * (1 + SPREAD * (2 * drawn - 1))


def again_and_again(name: str, every_s: float, work: Callable[[], None], passing: tuple[type[Exception], ...], done_text: str) -> None:
    """Works until SIGTERM, and serves when it succeeded last as `trainhouse_NAME_last_success_seconds`. Blocks."""
    from prometheus_client import Gauge

    from trainhouse.cli.shared import output
    from trainhouse.events.runtime.metrics_server import new_registry, serve
    from trainhouse.projections.shutdown import on_signal

    stop, registry = on_signal(), new_registry()
    done = Gauge(f"trainhouse_{name}_last_success_seconds", done_text, registry=registry)
    serve(registry)
    while not stop.is_set():
        wait_s = wait_of(every_s, random.random())  # nosec B311: spreads load, hides nothing
        try:
            work()
            done.set(time.time())
        except passing as error:
            output.remark(f"trainhouse {name}: {error}; again in {wait_s:.4g} s")
        stop.wait(wait_s)
