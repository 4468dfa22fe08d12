"""Evidently's preset of data drift on pairs of columns: `python -m tests.bench.peers.evidently_drift FOLDER`."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from evidently import DataDefinition, Dataset, Report
from evidently.presets import DataDriftPreset


def is_drifted(reference: np.ndarray, live: np.ndarray) -> bool:
    """Returns whether the one column is called drifted."""
    as_column = DataDefinition(numerical_columns=["x"])
    made = [Dataset.from_pandas(pd.DataFrame({"x": values}), data_definition=as_column) for values in (live, reference)]
    found = json.loads(Report([DataDriftPreset()]).run(*made).json())
    counted = next(metric for metric in found["metrics"] if "DriftedColumnsCount" in metric.get("metric_name", metric.get("metric_id", "")))
    return bool(counted["value"]["count"] >= 1)


def main() -> None:
    """Prints shares in per cent."""
    paths = sorted(Path(sys.argv[1]).glob("*.npz"))
    false = found = 0
    began = time.process_time()
    for path in paths:
        pair = np.load(path)
        false += is_drifted(pair["reference"], pair["live"])
        found += is_drifted(pair["reference"], pair["shifted"])
    shares = {"undrifted": 100 * false / len(paths), "shifted": 100 * found / len(paths)}
    print(json.dumps(shares | {"cpu_s": time.process_time() - began}))


if __name__ == "__main__":
    main()
