"""Use that fades: what was held, averaged over the past with a half-life, in whole numbers.

Time is cut into steps of a sixteenth of the half-life. What was held in a step is added up exactly (amount x milliseconds); at the end of a
step all of the past shrinks by 2**(-1/16). So the average changes at ends of steps only, and two machines agree on its every digit.

Holds: a track is frozen; reading it at any time changes nothing. Multipliers are literals, 32 binary places.
Never: uses floats.
"""

from typing import NamedTuple

STEPS = 16
"""Steps to a half-life."""
_PLACES = 32
_FIRST_HALF = (4294967296, 4112874773, 3938502376, 3771522796, 3611622603, 3458501653, 3311872529, 3171459999)
_SECOND_HALF = (3037000500, 2908241642, 2784941738, 2666869345, 2553802834, 2445529972, 2341847524, 2242560872)
_POWERS = _FIRST_HALF + _SECOND_HALF
"""2**(-k/16) for k = 0..15, times 2**32."""
_STEADY = 97009269606
"""f / (1 - f) for f = 2**(-1/16), times 2**32: all of the past, counted in steps, when something was always held."""


class Track(NamedTuple):
    """One resource of one team: `held` since `since_ms`; `area` in the step until then; `past` before the step. Units: amount x ms."""

    held: int = 0
    since_ms: int = 0
    area: int = 0
    past: int = 0


def fade(past: int, steps: int) -> int:
    """`past` after so many steps."""
    return past * _POWERS[steps % STEPS] >> (_PLACES + steps // STEPS)


def advance(track: Track, now_ms: int, step_ms: int, more: int = 0) -> Track:
    """The same use, as of a later time. An earlier `now_ms` counts as no time. `more`: what is held beside, from then on."""
    now_ms = max(now_ms, track.since_ms)
    first, last = track.since_ms // step_ms, now_ms // step_ms
    held = track.held
    if first == last:
        return Track(held + more, now_ms, track.area + held * (now_ms - track.since_ms), track.past)
    area = track.area + held * ((first + 1) * step_ms - track.since_ms)
    past = fade(track.past + area, last - first)
    if held and last - first > 1:
        steady = held * step_ms * _STEADY >> _PLACES
        past += steady - fade(steady, last - first - 1)
    return Track(held + more, now_ms, held * (now_ms - last * step_ms), past)


def average(track: Track, now_ms: int, step_ms: int) -> int:
    """Returns the average held over the faded past, until the end of the last whole step; in the resource's unit."""
    past = advance(track, now_ms, step_ms).past
    return (past << _PLACES) // (step_ms * _STEADY)
