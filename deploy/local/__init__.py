"""The embedded stack: Kafka, an S3 store, ClickHouse and our own processes under one supervisor, on loopback only.

Start at `stack.py` (`up`, `down`, `ps`, `env`); `parts.py` lists what runs, `startup.py` in which order.
Never imported by the parts themselves: they know settings alone.
"""
