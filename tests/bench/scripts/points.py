"""A job for the freshness bench: logs a point every 10 ms for STEADY steps, then BURST points as fast as it can.

usage: points.py STEADY BURST FILE     FILE gets the moment of the last call, seconds since 1970
"""

import sys
import time
from pathlib import Path

from trainhouse.workers import Session

steady, burst, moment = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
with Session.start() as session:
    for _ in session.steps(steady):
        session.log(sent_at_s=time.time())
        time.sleep(0.01)
    for i in range(burst):
        session.log(burst=float(i))
    moment.write_text(repr(time.time()))
