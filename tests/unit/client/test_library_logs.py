"""Warnings of the client in a program that sets up no logs: they are no part of what the program prints."""

import subprocess
import sys

PROGRAM = """
import structlog
from trainhouse.client import connect
structlog.get_logger("trainhouse.events.bus.kafka").warning("a reader was opened anew")
print("answer")
"""


def test_they_go_to_standard_error() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "answer\n" and "opened anew" in done.stderr
