"""What MLflow's store on SQLite takes for the questions of its pages: python mlflow_questions.py DATABASE RUNS POINTS.

Runs in the peers' own environment. Prints one JSON object: p50 and worst in milliseconds of each question.
"""

import json
import os
import statistics
import sys
import time

from mlflow import MlflowClient
from mlflow.entities import Metric

database, runs, points = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
client = MlflowClient(f"sqlite:///{database}")
experiment = client.create_experiment("bench")
ids = []
for _ in range(runs):
    run = client.create_run(experiment)
    for first in range(0, points, 1000):
        steps = range(first, min(points, first + 1000))
        client.log_batch(run.info.run_id, metrics=[Metric("loss", 8.0 / (s + 1), s, s) for s in steps])
    ids.append(run.info.run_id)


def timed(ask, times=10):
    took = []
    for turn in range(times):
        begin = time.perf_counter()
        ask(turn)
        took.append((time.perf_counter() - begin) * 1000)
    return {"p50": statistics.median(took), "worst": max(took)}


found = {
    "list_100_runs": timed(lambda _: client.search_runs([experiment], max_results=100)),
    "one_run": timed(lambda turn: client.get_run(ids[turn])),
    "curves_of_50_runs": timed(lambda _: [client.get_metric_history(i, "loss") for i in ids[:50]], 3),
}
print(json.dumps(found), flush=True)
os._exit(0)
