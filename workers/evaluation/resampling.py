"""Bootstrap of statistics of samples: rows are drawn with replacement. Pure.

Holds: equal arrays, seeds and labels give equal draws.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

Values = NDArray[np.float64]
Transform = Literal["identity", "sqrt", "exp"]
TRANSFORMS: Final[Mapping[str, Any]] = {"identity": lambda values: values, "sqrt": np.sqrt, "exp": np.exp}
LEAST_RESAMPLES: Final = 999
_MOST_DRAWS: Final = 500_000_000
"""Samples that are drawn for one statistic at most; of more samples there are fewer resamples."""
_MOST_CELLS: Final = 64
"""Different rows of which counts are drawn, which is the same and much faster."""
_BATCH_DRAWS: Final = 200_000
"""Samples that are drawn at a time; of so many the arrays stay in the cache. The draws are the same for any number."""


def generator(seed: int, *labels: str) -> np.random.Generator:
    """A generator of its own for what has these labels, so that it draws the same whatever else is drawn."""
    return np.random.default_rng([seed, zlib.crc32("\0".join(labels).encode())])


def resampled(columns: Sequence[Values], statistic: Callable[..., Any], resamples: int, rng: np.random.Generator) -> Values:
    """Statistics of resamples of the rows of `columns`, arrays of shape (samples,); shape (resamples,). `statistic(*columns, axis, size)`
    takes arrays whose sums along `axis` are those of `size` samples."""
    samples = len(columns[0])
    cells = _cells(columns)
    if cells is not None:
        rows, counts = cells
        drawn = rng.multinomial(samples, counts / samples, size=resamples)
        return np.asarray(statistic(*(drawn * row for row in rows), axis=-1, size=samples), np.float64)
    found = stats.bootstrap(
        tuple(columns),
        lambda *drawn, axis=-1: statistic(*drawn, axis=axis, size=samples),
        paired=True,
        vectorized=True,
        n_resamples=max(LEAST_RESAMPLES, min(resamples, _MOST_DRAWS // samples)),
        batch=max(1, _BATCH_DRAWS // samples),
        method="percentile",
        rng=rng,
    )
    return np.asarray(found.bootstrap_distribution, np.float64)


def _cells(columns: Sequence[Values]) -> tuple[Values, NDArray[np.int64]] | None:
    """The different rows, as arrays by column, and how often each is there; None where they are many."""
    if any(len(np.unique(column)) > _MOST_CELLS for column in columns):
        return None
    rows, counts = np.unique(np.stack(list(columns)), axis=1, return_counts=True)
    return (rows, counts) if rows.shape[1] <= _MOST_CELLS else None


def value_of(numerator: Values, weight: Values | None, transform: Transform) -> float:
    """`transform(sum(numerator) / sum(weight))`; without weights of the mean; 0 of no samples."""
    if not len(numerator):
        return 0.0
    return float(TRANSFORMS[transform](numerator.sum() / (len(numerator) if weight is None else weight.sum())))


def values_drawn(numerator: Values, weight: Values | None, transform: Transform, resamples: int, rng: np.random.Generator) -> Values:
    """The same of resamples; those that draw no weight are left out."""
    function = TRANSFORMS[transform]
    if weight is None:
        return resampled((numerator,), lambda part, axis, size: function(part.sum(axis) / size), resamples, rng)

    def ratio(part: Values, of: Values, axis: int, size: int) -> Any:
        del size
        total = of.sum(axis)
        return np.where(total > 0, function(part.sum(axis) / np.where(total > 0, total, 1.0)), np.nan)

    drawn = resampled((numerator, weight), ratio, resamples, rng)
    return drawn[np.isfinite(drawn)]


def interval(
    numerator: Values, weight: Values | None, transform: Transform, confidence: float, resamples: int, rng: np.random.Generator
) -> tuple[float, float] | None:
    """Interval of the value: of a share of right samples Wilson's, which does not vanish where all are right; else the bootstrap's
    percentiles. None of fewer than two samples."""
    if len(numerator) < 2:
        return None
    if weight is None and transform == "identity" and bool(np.all((numerator == 0) | (numerator == 1))):
        low, high = proportion_confint(int(numerator.sum()), len(numerator), alpha=1 - confidence, method="wilson")
        return float(low), float(high)
    drawn = values_drawn(numerator, weight, transform, resamples, rng)
    if not len(drawn):
        return None
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
