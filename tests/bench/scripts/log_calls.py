"""Logs one metric CALLS times through the session and prints microseconds a call: log_calls.py CALLS."""

import json
import sys
import time

from trainhouse.workers import Session

calls = int(sys.argv[1])
with Session.start() as session:
    log = session.log
    begin = time.perf_counter()
    for i in range(calls):
        log(loss=2.5 / (i + 1))
    elapsed_s = time.perf_counter() - begin
print(json.dumps({"us_per_call": elapsed_s / calls * 1e6, "calls_per_s": calls / elapsed_s}))
