"""Process of samplers: the same suggestions as here, and bounds that hold whatever a sampler does."""

import asyncio
import os
import signal
from math import inf, nan
from typing import Any

import pytest

from tests.support.told_trials import SPACE, run, study_spec, told_trial
from trainhouse.events.model.study_decisions import TrialState
from trainhouse.scheduler.core.studies.trial_record import ToldTrial
from trainhouse.scheduler.stream.studies import sampler_process
from trainhouse.scheduler.stream.studies.optuna_sampler import suggest
from trainhouse.scheduler.stream.studies.sampler_process import Ended, SamplerEndedError, SamplerProcess
from trainhouse.scheduler.stream.studies.suggestion_frames import LENGTH_BYTES, Question, question_frame, read_question

pytestmark = pytest.mark.filterwarnings("ignore")
SPEC = study_spec(SPACE | {"choice": {"choices": ["a", 1, 1.0, True, None]}}, "tpe")


def trials(count: int) -> list[ToldTrial]:
    return run(SPEC, count, lambda spec, told, number: suggest(spec, told, number).values)


def test_a_question_is_read_back_as_it_was() -> None:
    told = [
        *trials(12),
        told_trial(12, {"lr": 0.5, "choice": 1}, TrialState.STOPPED, 0.25, curve=[(1, 0.5), (3, inf)]),
        told_trial(13, {"choice": True, "lr": 1e-300}, TrialState.FAILED),
        told_trial(14, {"lr": 0.5}, TrialState.COMPLETE, -inf),
    ]
    back = read_question(question_frame(Question(SPEC, told, 15, 2.5))[LENGTH_BYTES:])
    assert (back.spec, list(back.trials), back.number, back.cpu_s) == (SPEC, told, 15, 2.5)
    assert [repr(each.values) for each in back.trials] == [repr(dict(each.values)) for each in told], "types and order count"
    with_nan = [told_trial(0, {"lr": 0.1}, TrialState.COMPLETE, nan)]
    assert repr(read_question(question_frame(Question(SPEC, with_nan, 1, 1.0))[LENGTH_BYTES:]).trials) == repr(with_nan)


def test_the_process_suggests_as_this_one_and_ends_when_it_is_to() -> None:
    told = trials(15)

    async def story() -> None:
        process = SamplerProcess()
        for number in (15, 16):
            answer = await process.suggest(Question(SPEC, told, number, 30.0))
            assert answer.suggestion == suggest(SPEC, told, number) and 0 < answer.cpu_s < 30
        pid = _pid(process)
        await process.end()
        assert not _is_there(pid)
        assert (await process.suggest(Question(SPEC, told, 15, 30.0))).suggestion == suggest(SPEC, told, 15), "another one is started"
        await process.end()

    asyncio.run(story())


def test_a_suggestion_beyond_its_time_or_memory_ends_with_the_cause() -> None:
    long = study_spec({f"p{number}": {"low": 0.0, "high": 1.0} for number in range(200)}, "tpe")
    told = [ToldTrial(number, dict.fromkeys(long.space, number / 500), TrialState.COMPLETE, (float(number),), ()) for number in range(500)]

    async def ended(process: SamplerProcess, cpu_s: float) -> SamplerEndedError:
        with pytest.raises(SamplerEndedError) as found:
            await process.suggest(Question(long, told, 500, cpu_s))
        return found.value

    async def story() -> None:
        process = SamplerProcess()
        error = await ended(process, 0.2)
        assert (error.cause, error.was_new) == (Ended.TIME, True)
        assert (await process.suggest(Question(SPEC, [], 0, 30.0))).suggestion.values, "another process answers"
        process.most_memory_bytes = 1024
        error = await ended(process, 30.0)
        assert (error.cause, error.was_new) == (Ended.MEMORY, False) and "MiB" in str(error)
        assert process._process is None

    sampler_process_look(story)


def test_a_process_that_is_killed_is_noticed() -> None:
    async def story() -> None:
        process = SamplerProcess()
        await process.suggest(Question(SPEC, [], 0, 30.0))
        os.kill(_pid(process), signal.SIGKILL)
        with pytest.raises(SamplerEndedError, match="-9") as found:
            await process.suggest(Question(SPEC, [], 0, 30.0))
        assert found.value.cause is Ended.DIED

    asyncio.run(story())


def test_a_question_that_is_given_up_leaves_no_process() -> None:
    async def story() -> None:
        process = SamplerProcess()
        await process.suggest(Question(SPEC, [], 0, 30.0))
        pid = _pid(process)
        asking = asyncio.create_task(process.suggest(Question(SPEC, trials(3), 3, 30.0)))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await process.end()
        assert not _is_there(pid)

    asyncio.run(story())


def sampler_process_look(story: Any) -> None:
    before = sampler_process.LOOK_S
    sampler_process.LOOK_S = 0.02  # type: ignore[misc]
    try:
        asyncio.run(story())
    finally:
        sampler_process.LOOK_S = before  # type: ignore[misc]


def _pid(process: SamplerProcess) -> int:
    assert process._process is not None
    return process._process.pid


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
