"""Stagnation of a study: what its best value gained for the device-seconds of the trials that ended lately. Pure.

Holds: what counts is the first device-second from which on less than the least gain was made: as long as the rule's device-seconds have not
passed since, the study goes on. So where it ends, each device-second gained less than the rule asks for. A trial without a finite value
gains nothing, and its device-seconds count.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from trainhouse.events import StagnationFigures, StagnationRule
from trainhouse.events.model.spec import MetricMode
from trainhouse.scheduler.core.studies.trial_record import ToldTrial


@dataclass(frozen=True, slots=True)
class Gain:
    """A trial that was the best one when it ended. `device_s`: device-seconds of all that had ended by then, its own among them."""

    trial: int
    device_s: float
    value: float


def with_gain(gains: tuple[Gain, ...], mode: MetricMode, ended: ToldTrial, device_s: float) -> tuple[Gain, ...]:
    """Gains, now that another trial has ended and all that ended had so many device-seconds."""
    if ended.result is None:
        return gains
    [value] = ended.result
    if gains and not mode.sign * value < mode.sign * gains[-1].value:
        return gains
    return (*gains, Gain(ended.number, device_s, value))


def stagnation_figures(rule: StagnationRule, mode: MetricMode, gains: Sequence[Gain], device_s: float) -> StagnationFigures | None:
    """Returns what the best value gained since the latest device-second from which on it gained too little; None: there is no value yet."""
    if not gains:
        return None
    best, sign = gains[-1], mode.sign
    # Each gain is better than the one before it, so what is left to gain falls from one to the next.
    too_little = bisect_left(gains, 1, key=lambda each: int(_is_little(rule, sign * (each.value - best.value))))
    since = gains[too_little]
    gain, took = sign * (since.value - best.value), device_s - since.device_s
    return StagnationFigures(
        best=best.value,
        trial=best.trial,
        gain=gain,
        from_device_s=since.device_s,
        to_device_s=device_s,
        gain_rate=gain / took if took > 0 else 0.0,
        min_gain=rule.min_gain,
        within_device_s=rule.device_s,
    )


def why_stagnant(name: str, figures: StagnationFigures | None) -> str:
    """Returns why a study ends by its rule, with the numbers; empty text: it goes on. `name`: of its metric."""
    if figures is None or figures.to_device_s - figures.from_device_s < figures.within_device_s:
        return ""
    asked = (
        f"at least {figures.min_gain:g} in {figures.within_device_s:g}, {figures.min_gain / figures.within_device_s:.3g} for each"
        if figures.min_gain
        else f"any gain in {figures.within_device_s:g}"
    )
    return (
        f"stagnation: the best {name} is {figures.best:g} (trial {figures.trial}) and gained {figures.gain:g} over "
        f"{figures.to_device_s - figures.from_device_s:.0f} device-seconds, {figures.from_device_s:.0f} to {figures.to_device_s:.0f}: "
        f"{figures.gain_rate:.3g} for each; asked for is {asked}"
    )


def _is_little(rule: StagnationRule, gain: float) -> bool:
    return gain < rule.min_gain or gain <= 0
