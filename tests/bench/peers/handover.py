"""Hands POINTS points over by MLflow's client, asynchronously: python handover.py POINTS [TRACKING_URI].

In batches of 1,000, and one call a point. Prints milliseconds until the calls are done, and until everything is kept, as JSON. The client
gathers calls for a second (MLFLOW_ASYNC_LOGGING_BUFFERING_SECONDS): by itself it sends a request a point, whatever it speaks to.
"""

import json
import os
import sys
import time

os.environ["MLFLOW_ASYNC_LOGGING_BUFFERING_SECONDS"] = "1"
import mlflow
from mlflow.entities import Metric

BATCH = 1000
points = int(sys.argv[1])
if len(sys.argv) > 2:
    mlflow.set_tracking_uri(sys.argv[2])
mlflow.set_experiment("bench-handover")
client = mlflow.MlflowClient()
figures = {}
with mlflow.start_run() as run:
    client.log_batch(run.info.run_id, [Metric("warm", 0.0, 1, 0)], synchronous=False).wait()
    now_ms = int(time.time() * 1000)
    begin = time.perf_counter()
    waiting = []
    for start in range(0, points, BATCH):
        batch = [Metric("loss", 2.5 / (step + 1), now_ms, step) for step in range(start, start + BATCH)]
        waiting.append(client.log_batch(run.info.run_id, batch, synchronous=False))
    figures["batches_ms"] = (time.perf_counter() - begin) * 1000
    for each in waiting:
        each.wait()
    figures["batches_kept_ms"] = (time.perf_counter() - begin) * 1000
    begin = time.perf_counter()
    for step in range(points):
        last = mlflow.log_metric("single", 2.5 / (step + 1), step=step, synchronous=False)
    figures["calls_ms"] = (time.perf_counter() - begin) * 1000
    mlflow.flush_async_logging()
    figures["calls_kept_ms"] = (time.perf_counter() - begin) * 1000
print(json.dumps(figures), flush=True)
