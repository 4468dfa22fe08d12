"""A job for the freshness bench: logs a point every 10 ms for `STEADY` points, then `BURST` points as fast as it can.

usage: points.py STEADY BURST FILE     FILE gets the moment of the last call, seconds since 1970
"""

import sys
import time
from pathlib import Path

from trainhouse.workers import Session

steady, burst, moment = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
session = Session.start()
for step in range(steady):
    session.log(sent_at_s=time.time(), step=step)
    time.sleep(0.01)
for step in range(steady, steady + burst):
    session.log(burst=2.5, step=step)
moment.write_text(repr(time.time()))
time.sleep(20)
