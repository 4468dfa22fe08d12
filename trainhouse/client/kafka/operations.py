"""Asks the agents of a running job for something, and gathers their answers.

Holds: every rank's answer ends once, or the call raises NoReplyError naming the ranks that are missing. What another than the rank's
node wrote
is no answer (replies.py).
"""

import getpass
import secrets
import socket
import time
from collections.abc import Iterator, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from trainhouse.client.errors import NoReplyError, NotReachableError
from trainhouse.client.kafka.replies import Answers, Keys, keys_of, nodes_of
from trainhouse.client.kafka.status_feed import METADATA_TIMEOUT_S, unreachable
from trainhouse.events import (
    AskedVia,
    DumpStacks,
    ExecuteCommand,
    JobStatus,
    NodePlacement,
    OperationReplied,
    OperationRequest,
    ProfileRanks,
    RequestedBy,
    envelope_of,
)
from trainhouse.events.bus.kafka import (
    TO_END,
    EventProducer,
    at_least_s,
    consumer,
    headers_of,
    next_records,
    partitions_of,
    read_to_end,
    watermarks,
)
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.runtime.clock import wall_ms
from trainhouse.events.security.key_files import read_key
from trainhouse.events.security.signing import SigningKey
from trainhouse.events.settings import KafkaSettings, OperationsSettings
from trainhouse.events.wire.topics import NODE_KEYS, OPERATION_REPLIES, OPERATIONS

GRACE_S = 5.0  # for the answer to travel
STORING_S = 125.0  # for traces to be stored, and their answers to travel


def dump_stacks(settings: KafkaSettings, status: JobStatus, timeout_s: float = 30.0) -> Iterator[OperationReplied]:
    """Yields parts of every rank's Python stack. Blocks. Raises NoReplyError."""
    request, patient_s = secrets.token_hex(8), max(timeout_s, settings.min_timeout_s)
    expires, requester = wall_ms() + round(patient_s * 1000), operator()
    asked = [
        DumpStacks(request_id=request, node_id=p.node_id, job_id=_job(status), expires_at_ms=expires, requested_by=requester, host=host())
        for p in status.allocation
    ]
    yield from _ask(settings, request, asked, nodes_of(status.allocation), patient_s)


def execute(
    settings: KafkaSettings, status: JobStatus, rank: int, command: tuple[str, ...], timeout_s: float = 60.0
) -> Iterator[OperationReplied]:
    """Yields parts of the output of a command that runs beside one rank; the last has the exit code. Blocks. Raises NoReplyError."""
    request, patient_s = secrets.token_hex(8), max(timeout_s, settings.min_timeout_s)
    asked = ExecuteCommand(
        request_id=request,
        node_id=node_of(status, rank).node_id,
        job_id=_job(status),
        expires_at_ms=wall_ms() + round(patient_s * 1000),
        rank=rank,
        command=command,
        timeout_s=timeout_s,
        requested_by=operator(),
        host=host(),
    )
    yield from _ask(settings, request, [asked], {rank: str(asked.node_id)}, patient_s + GRACE_S)


def profile(
    settings: KafkaSettings, status: JobStatus, request: str, ranks: Sequence[int], steps: int, timeout_s: float
) -> Iterator[OperationReplied]:
    """Yields the progress of each rank's trace; the last part of each says where it is, or why there is none. Blocks. Raises NoReplyError.

    `timeout_s`: for recording. Raises KeyError for a rank that does not run.
    """
    patient_s = max(timeout_s, settings.min_timeout_s)
    expires, requester = wall_ms() + round(patient_s * 1000), operator()
    common = {"request_id": request, "job_id": _job(status), "expires_at_ms": expires, "requested_by": requester, "host": host()}
    nodes = {rank: str(node_of(status, rank).node_id) for rank in ranks}
    asked = [
        ProfileRanks.model_validate(
            common | {"node_id": node, "ranks": [r for r in ranks if nodes[r] == node], "steps": steps, "timeout_s": timeout_s}
        )
        for node in dict.fromkeys(nodes.values())
    ]
    yield from _ask(settings, request, asked, nodes, patient_s + STORING_S)


def operator() -> RequestedBy:
    """Returns the operator, as far as this machine knows."""
    return RequestedBy(name=getpass.getuser(), via=AskedVia.OPERATOR)


def host() -> str:
    """From where it is asked, as this machine calls itself."""
    return socket.gethostname()[:64]


def signing_key() -> SigningKey | None:
    """The operations key of whoever asks, where settings name one. Raises InvalidKeyError."""
    path = OperationsSettings().key
    return None if path is None else read_key(path)


def node_of(status: JobStatus, rank: int) -> NodePlacement:
    """The placement that holds a rank. Raises KeyError."""
    for placement in status.allocation:
        if rank in placement.ranks:
            return placement
    raise KeyError(rank)


def _ask(
    settings: KafkaSettings, request: str, asked: Sequence[OperationRequest], nodes: dict[int, str], timeout_s: float
) -> Iterator[OperationReplied]:
    reader = consumer(settings, log_level=0)
    try:
        answers = Answers(request, nodes, _keys(settings))
        _assign_to_end(reader)
        producer = EventProducer(settings, log_level=0)
        producer.signing = signing_key()
        for number, event in enumerate(asked):
            envelope = envelope_of(event, id=f"{request}:{number}", source="trainhouse/client", now_ms=wall_ms())
            producer.send(OPERATIONS, envelope, key=str(event.node_id))
        producer.flush()
        yield from _replies(reader, answers, timeout_s)
    except (KafkaException, BusUnavailableError) as error:
        raise NotReachableError(unreachable(settings.bootstrap, error)) from error
    finally:
        reader.close()


def _assign_to_end(reader: Consumer) -> None:
    topic = reader.list_topics(OPERATION_REPLIES, timeout=at_least_s(reader, METADATA_TIMEOUT_S)).topics[OPERATION_REPLIES]
    places = []
    for number in topic.partitions:
        _, high = watermarks(reader, OPERATION_REPLIES, number, METADATA_TIMEOUT_S)
        places.append(TopicPartition(OPERATION_REPLIES, number, high))
    reader.assign(places)


def _keys(settings: KafkaSettings) -> Keys:
    reader = consumer(settings, log_level=0, **TO_END)
    try:
        partitions = partitions_of(reader, NODE_KEYS, METADATA_TIMEOUT_S)
        return keys_of((message.value(), headers_of(message)) for message in read_to_end(reader, NODE_KEYS, partitions))
    finally:
        reader.close()


def _replies(reader: Consumer, answers: Answers, timeout_s: float) -> Iterator[OperationReplied]:
    left, deadline, foreign = set(answers.nodes), time.monotonic() + timeout_s, 0
    while left:
        if time.monotonic() > deadline:
            missing = ", ".join(map(str, sorted(left)))
            more = f" ({foreign} answers were not signed by its node, and do not count)" if foreign else ""
            raise NoReplyError(
                f"no answer from rank {missing} within {timeout_s:.0f} s: is its node's agent up? See `trainhouse nodes`{more}"
            )
        for message in next_records(reader, 100, 0.2):
            if message.error() is not None:
                continue
            value, headers = message.value() or b"", headers_of(message)
            event = answers.read(value, headers)
            if event is None:
                continue
            if not answers.counts(event, value, headers):
                foreign += 1
                continue
            yield event
            if event.done:
                left.discard(event.rank)


def _job(status: JobStatus) -> str:
    assert status.job_id is not None, "only a job that was admitted has an allocation"
    return status.job_id
