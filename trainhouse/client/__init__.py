"""Trainhouse from a program: submit jobs, follow them, ask in SQL.

client = TrainhouseClient.from_settings()
job = client.submit(spec_of({"name": "gpt", "gang": 2, "runtime": {"command": ["python", "train.py"]}}))
print(client.wait(job).state)
"""

from trainhouse.client.client import Submitted, TrainhouseClient, spec_of
from trainhouse.client.errors import ClientError, InvalidSpec, NoReply, NotReachable, QueryFailed, UnknownJob
from trainhouse.client.sql import SqlEndpoint, Table

__all__ = [
    "ClientError",
    "InvalidSpec",
    "NoReply",
    "NotReachable",
    "QueryFailed",
    "SqlEndpoint",
    "Submitted",
    "Table",
    "TrainhouseClient",
    "UnknownJob",
    "spec_of",
]
