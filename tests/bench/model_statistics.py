"""Statistics of models: how often equal models are called better or worse, how often a true gain is found, how often undrifted values are
called drifted, and how often shifted ones; beside an unpaired z-test and Evidently's defaults.

Everything is drawn by seeds; only how long it takes differs between machines. What Evidently finds is measured where it can be installed.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy import stats

from tests.bench import report
from tests.bench.peers import environment
from trainhouse.events.model.dataset_profile import FieldProfile
from trainhouse.events.model.model_observations import LiveVerdict
from trainhouse.workers.evaluation.comparison import ComparisonLimits, PairedMetric, Verdict, compare_metrics
from trainhouse.workers.evaluation.drift import ProfiledRows, live_drift, sketch_of

PAIRS, GAINS = 2000, 400
"""Pairs of equal models, and pairs of which one has a point more."""
SAMPLES = 5000
DRIFT_PAIRS, SHIFTED_OF = 500, 5
"""Undrifted pairs; each fifth also with a shift."""
ROWS = (1000, 100_000, 2_000_000)
PEER_PAIRS = {1000: 200, 100_000: 20}
"""Evidently reads rows as data frames; two million take it too long."""
CLAIMS = (Verdict.BETTER, Verdict.WORSE)
SHIFTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda x: x + 0.4 * x.std(),
    "spread": lambda x: x.mean() + 1.6 * (x - x.mean()),
    "unit": lambda x: np.where(np.arange(len(x)) % 10 == 0, 1000 * x, x),
}
Shape = Callable[[np.random.Generator, int], np.ndarray]
SHAPES: tuple[Shape, ...] = (
    lambda rng, n: rng.normal(0, 1, n),
    lambda rng, n: np.exp(rng.normal(3, 1, n)),
    lambda rng, n: rng.poisson(4, n).astype(float),
    lambda rng, n: np.where(rng.random(n) < 0.7, 0.0, rng.gamma(2, 2, n)),
)


def run() -> None:
    """Prints the figures of comparison, then those of drift."""
    _equal_models()
    _true_gain()
    for rows in ROWS:
        _drift(rows)


def _right_or_wrong(rng: np.random.Generator, samples: int, gain: float, group: str = "") -> PairedMetric:
    """Two models that agree on 94 % of the samples, 80 % of which both have right."""
    apart = 0.06
    shares = [0.8, (apart + gain) / 2, (apart - gain) / 2, 0.2 - apart]
    drawn = rng.choice(4, samples, p=shares)
    return PairedMetric("accuracy", np.isin(drawn, (0, 1)).astype(float), np.isin(drawn, (0, 2)).astype(float), group=group)


def _losses(rng: np.random.Generator, samples: int) -> PairedMetric:
    """Losses with a long tail that both models share."""
    hardness = rng.gamma(1.0, 1.0, samples)
    first, second = (hardness * np.exp(rng.normal(0, 0.2, samples)) for _ in range(2))
    return PairedMetric("loss", first, second, higher_is_better=False)


def _equal_models(pairs: int = PAIRS) -> None:
    limits = ComparisonLimits(resamples=999)
    kinds: dict[str, Callable[[np.random.Generator], list[PairedMetric]]] = {
        "accuracy": lambda rng: [_right_or_wrong(rng, 1000, 0.0)],
        "loss": lambda rng: [_losses(rng, 1000)],
        "accuracy in 8 groups": lambda rng: [_right_or_wrong(rng, 500, 0.0, f"g{k}") for k in range(8)],
    }
    for name, made in kinds.items():
        began = time.process_time()
        claims = sum(
            any(each.verdict in CLAIMS for each in compare_metrics(made(np.random.default_rng([1, n])), limits)) for n in range(pairs)
        )
        figures = {"pairs": pairs, "trainhouse": 100 * claims / pairs, "aim": 6.0, "cpu_s": time.process_time() - began}
        report.line("model_equal_pairs", unit="% called better or worse", of=name, **figures)


def _true_gain() -> None:
    paired = unpaired = 0
    began = time.process_time()
    for n in range(GAINS):
        pair = _right_or_wrong(np.random.default_rng([2, n]), SAMPLES, 0.01)
        paired += compare_metrics([pair])[0].verdict == Verdict.BETTER
        a, b = pair.first.mean(), pair.second.mean()
        shared = (a + b) / 2
        unpaired += bool(a > b and 2 * stats.norm.sf((a - b) / math.sqrt(2 * shared * (1 - shared) / SAMPLES)) < 0.05)
    report.line(
        "model_true_gain",
        unit="% of true gains of a point that are found",
        samples=SAMPLES,
        trainhouse=100 * paired / GAINS,
        unpaired_z_test=100 * unpaired / GAINS,
        ratio=paired / max(1, unpaired),
        aim=2.0,
        cpu_s=time.process_time() - began,
    )


def _drift(rows: int, pairs: int = DRIFT_PAIRS) -> None:
    false = 0
    shifted = dict.fromkeys(SHIFTS, 0)
    began = time.process_time()
    for n in range(pairs):
        reference, live = _rows(n, rows)
        of_reference = _profiled(reference)
        false += _is_drifted(of_reference, _profiled(live))
        if n % SHIFTED_OF == 0:
            name = list(SHIFTS)[n // SHIFTED_OF % len(SHIFTS)]
            shifted[name] += _is_drifted(of_reference, _profiled(SHIFTS[name](live)))
    report.line(
        "model_drift",
        unit="% of pairs called drifted",
        rows=rows,
        pairs=pairs,
        undrifted=100 * false / pairs,
        shifted=100 * sum(shifted.values()) * SHIFTED_OF / pairs,
        found=shifted,
        aim={"undrifted": 1.0, "shifted": 95.0},
        cpu_s=time.process_time() - began,
    )
    if rows in PEER_PAIRS:
        _peer(rows, PEER_PAIRS[rows])


def _rows(n: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([3, n, rows])
    shape = SHAPES[n % len(SHAPES)]
    return shape(rng, rows), shape(rng, rows)


def _profiled(values: np.ndarray) -> ProfiledRows:
    return ProfiledRows(len(values), {"x": FieldProfile(samples=len(values), numbers=sketch_of(values))})


def _is_drifted(reference: ProfiledRows, live: ProfiledRows) -> bool:
    return live_drift(reference, live)[0].verdict == LiveVerdict.DRIFTED


def _peer(rows: int, pairs: int) -> None:
    """The same pairs for Evidently's preset of data drift."""
    with TemporaryDirectory() as folder:
        for n in range(pairs):
            reference, live = _rows(n, rows)
            shifted = SHIFTS[list(SHIFTS)[n % len(SHIFTS)]](live)
            np.savez(Path(folder, f"{n}.npz"), reference=reference, live=live, shifted=shifted)
        try:
            found = environment.run("evidently_drift", folder, timeout_s=900, name=environment.DRIFT)
        except Exception as error:
            report.line("model_drift_evidently", rows=rows, failed=str(error)[-300:])
            return
    report.line("model_drift_evidently", unit="% of pairs called drifted", rows=rows, pairs=pairs, **found)
