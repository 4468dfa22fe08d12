"""Services of the command line: what passes by itself is waited out, and two of them drift apart."""

import os
import signal

import pytest

from trainhouse.cli.shared.repeat import again_and_again, wait_of


def test_a_wait_is_as_asked_give_or_take_a_tenth() -> None:
    assert [round(wait_of(100, drawn), 6) for drawn in (0, 0.5, 1)] == [90, 100, 110]


def test_work_goes_on_after_what_passes_by_itself_until_the_signal(capsys: pytest.CaptureFixture[str]) -> None:
    calls = []
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    def work() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("the brokers are away")
        if len(calls) >= 3:
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        again_and_again("trial", 0.01, work, (ConnectionError,), "When it succeeded last")
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
    assert len(calls) >= 3, "one more may begin before the signal is noticed"
    assert "trainhouse trial: the brokers are away; again in" in capsys.readouterr().err


def test_what_else_goes_wrong_ends_it() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    def work() -> None:
        raise ValueError("a fault of the program")

    try:
        with pytest.raises(ValueError, match="a fault of the program"):
            again_and_again("trial", 0.01, work, (ConnectionError,), "When it succeeded last")
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
