"""Makes the table of learning curves that `study_early_stopping` reads: 600 configurations of a small network on scikit-learn's digits.

`python -m tests.bench.scripts.digits_curves` writes `tests/bench/data/digits_curves.parquet`: one row for each configuration and epoch, with
the loss and the error on a third of the samples, which training does not see, and the processor seconds of the epoch. The same seeds give
the same curves; the seconds are those of the machine.
"""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

TABLE = Path(__file__).parent.parent / "data" / "digits_curves.parquet"
CONFIGURATIONS, EPOCHS = 600, 27
BATCHES = (16, 32, 64, 128, 256)
Matrix = npt.NDArray[np.float32]


def configuration(rng: np.random.Generator) -> dict[str, Any]:
    """A configuration at random."""
    return {
        "lr": float(10 ** rng.uniform(-4, 0.5)),
        "momentum": float(rng.uniform(0, 0.99)),
        "hidden": round(float(np.exp(rng.uniform(np.log(4), np.log(128))))),
        "batch": int(rng.choice(BATCHES)),
    }


def curve(values: dict[str, Any], data: tuple[Matrix, npt.NDArray[np.int64]], seed: int) -> list[dict[str, float]]:
    """Trains one configuration, and returns loss, error and seconds of each epoch."""
    features, labels = data
    rng = np.random.default_rng(seed)
    order = np.random.default_rng(0).permutation(len(labels))
    train, held = order[len(order) // 3 :], order[: len(order) // 3]
    sizes = (features.shape[1], values["hidden"], 10)
    weights = [rng.normal(0, (2 / fan) ** 0.5, (fan, out)).astype(np.float32) for fan, out in pairwise(sizes)]
    weights += [np.zeros(size, np.float32) for size in sizes[1:]]
    moving = [np.zeros_like(each) for each in weights]
    points = []
    for _ in range(EPOCHS):
        begun_s = time.process_time()
        shuffled = rng.permutation(train)
        for first in range(0, len(shuffled), values["batch"]):
            rows = shuffled[first : first + values["batch"]]
            for weight, moved, gradient in zip(weights, moving, _gradients(weights, features[rows], labels[rows]), strict=True):
                moved *= values["momentum"]
                moved -= values["lr"] * gradient
                weight += moved
        seconds = time.process_time() - begun_s
        hidden = np.maximum(features[held] @ weights[0] + weights[2], 0)
        scores = (hidden @ weights[1] + weights[3]).astype(np.float64)
        scores -= scores.max(axis=1, keepdims=True)
        chances = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        loss = -chances[np.arange(len(held)), labels[held]].mean()
        points.append({"loss": float(loss), "error": float((scores.argmax(axis=1) != labels[held]).mean()), "seconds": seconds})
    return points


def _gradients(weights: list[Matrix], inputs: Matrix, labels: npt.NDArray[np.int64]) -> tuple[Matrix, ...]:
    hidden = np.maximum(inputs @ weights[0] + weights[2], 0)
    scores = hidden @ weights[1] + weights[3]
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    errors = scores / scores.sum(axis=1, keepdims=True)
    errors[np.arange(len(labels)), labels] -= 1
    errors /= len(labels)
    back = (errors @ weights[1].T) * (hidden > 0)
    return inputs.T @ back, hidden.T @ errors, back.sum(axis=0), errors.sum(axis=0)


def main() -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    data = (digits.data / 16).astype(np.float32), digits.target.astype(np.int64)
    rng = np.random.default_rng(1)
    rows: list[dict[str, Any]] = []
    with np.errstate(all="ignore"):
        for number in range(CONFIGURATIONS):
            values = configuration(rng)
            for epoch, point in enumerate(curve(values, data, number), 1):
                rows.append({"configuration": number, **values, "epoch": epoch} | point)
    table = pa.Table.from_pylist(rows)
    narrow = {"configuration": pa.int16(), "epoch": pa.int8(), "loss": pa.float32(), "error": pa.float32(), "seconds": pa.float32()}
    table = table.cast(pa.schema([(field.name, narrow.get(field.name, field.type)) for field in table.schema]))
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, TABLE, compression="zstd")


if __name__ == "__main__":
    main()
