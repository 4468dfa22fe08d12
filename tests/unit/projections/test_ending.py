"""A process of the projections ends when it is asked to, whatever it is doing right then."""

import subprocess
import sys

# The signal arrives between the moment at which a wait takes the event's lock and the one at which it waits.
ABOUT_TO_WAIT = """
import signal
from trainhouse.projections.shutdown import on_signal
stop = on_signal()
with stop._cond:
    signal.raise_signal(signal.SIGTERM)
assert stop.wait(30)
"""


def test_a_signal_that_comes_while_the_wait_for_it_begins_is_heard() -> None:
    subprocess.run([sys.executable, "-c", ABOUT_TO_WAIT], check=True, timeout=60)
