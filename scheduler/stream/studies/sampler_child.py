"""The process that computes suggestions: `python -m trainhouse.scheduler.stream.studies.sampler_child`.

Holds: it answers one question after another, and ends with the process that started it, whatever way that ends. A suggestion that takes
more of the processor than its question allows is ended by the kernel, and this process with it. Optuna is imported before a question's time
begins.
Never: writes anything else to its output.
"""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Final

from trainhouse.scheduler.stream.studies.optuna_sampler import suggest
from trainhouse.scheduler.stream.studies.suggestion_frames import Answer, answer_frame, next_frame, read_question

LOOK_S: Final = 0.5


def main() -> None:
    """Answers until its input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(ImportError):  # the suggestion names what is missing
        import trainhouse.scheduler.stream.studies.sampler_studies  # noqa: F401
    while (frame := next_frame(sys.stdin.buffer.read)) is not None:
        question = read_question(frame)
        begun_s = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, question.cpu_s)
        found = suggest(question.spec, question.trials, question.number)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        answers.write(answer_frame(Answer(found, time.process_time() - begun_s)))
        answers.flush()


def _end_with(parent: int) -> None:
    """A suggestion may be at work when the other process is killed."""
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(0)


if __name__ == "__main__":
    main()
