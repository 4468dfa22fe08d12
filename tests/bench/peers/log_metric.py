"""Costs of logging one metric in the libraries that people use today: python log_metric.py LIBRARY CALLS FOLDER.

Runs in the peers' own environment. Prints one JSON object: calls, microseconds a call in the training process.
"""

import json
import os
import sys
import time


def tensorboard(calls: int, folder: str) -> float:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)
    begin = time.perf_counter()
    for step in range(calls):
        writer.add_scalar("loss", 2.5 / (step + 1), step)
    return time.perf_counter() - begin


def trackio(calls: int, folder: str) -> float:
    os.environ["TRACKIO_DIR"] = folder
    import trackio as library

    run = library.init(project="bench", embed=False)
    begin = time.perf_counter()
    for step in range(calls):
        run.log({"loss": 2.5 / (step + 1)}, step=step)
    return time.perf_counter() - begin


def mlflow(calls: int, folder: str) -> float:
    import mlflow as library

    library.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    library.set_experiment("bench")
    with library.start_run():
        library.log_metric("loss", 0.0, step=0)
        begin = time.perf_counter()
        for step in range(calls):
            library.log_metric("loss", 2.5 / (step + 1), step=step)
        return time.perf_counter() - begin


if __name__ == "__main__":
    name, calls, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    elapsed_s = {"tensorboard": tensorboard, "trackio": trackio, "mlflow": mlflow}[name](calls, folder)
    print(json.dumps({"library": name, "calls": calls, "us_per_call": round(elapsed_s / calls * 1e6, 2)}), flush=True)
    os._exit(0)
