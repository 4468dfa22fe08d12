"""Trainhouse from a program: submit jobs, follow them, ask in SQL.

client = TrainhouseClient.from_settings()
job = client.submit(spec_of({"name": "gpt", "gang": 2, "runtime": {"command": ["python", "train.py"]}}))
print(client.wait(job).state)
"""

from trainhouse.client.client import Submitted, TrainhouseClient, spec_of
from trainhouse.client.errors import ClientError, InvalidSpec, NoReply, NotReachable, QueryFailed, RefusedChange, UnknownJob
from trainhouse.client.pools import Fleet
from trainhouse.client.sql import SqlEndpoint, Table

__all__ = [
    "ClientError",
    "Fleet",
    "InvalidSpec",
    "NoReply",
    "NotReachable",
    "QueryFailed",
    "RefusedChange",
    "SqlEndpoint",
    "Submitted",
    "Table",
    "TrainhouseClient",
    "UnknownJob",
    "spec_of",
]
