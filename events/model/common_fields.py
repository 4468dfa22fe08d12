"""Meanings of fields that are the same in every event that has them.

Holds: a field of such a name without a description of its own has this one in its JSON Schema, and so in the reference.
"""

from typing import Final

COMMON_FIELDS: Final = {
    "access_id": "pairs the beginning of an access with its end",
    "address": "address that the request came from",
    "at_ms": "time at which it happened, in milliseconds since 1970",
    "attempt": "number of the job's attempt, from 0",
    "boot_id": "boot of the node, as its kernel names it",
    "commit": "number of the checkpoint in its job's chain",
    "count": "how many alike since `since_ms` the event stands for",
    "device_id": "UUID of the accelerator, or the name of a cpu slot",
    "epoch": "fence of the attempt: grows with each one, and what carries an older one is ignored",
    "event_id": "id of the request that it answers",
    "exit_code": "exit code of the command",
    "from_partition": "partition of control that the pool leaves",
    "incarnation": "name of this start of the node's agent",
    "job_id": "id of the job",
    "learning_rate": "learning rate that the session logged last",
    "loss": "loss that the session logged last",
    "move": "id of the request to move the pool",
    "node_id": "id of the node",
    "pool": "name of the pool",
    "project": "name of the project",
    "rank": "number of the rank in its gang, from 0",
    "reason": "why, for a person",
    "requested_by": "who asked for it, and how that is known",
    "samples_per_s": "samples that the gang trains on in a second",
    "since_ms": "time since which it holds, in milliseconds since 1970",
    "spec": "whole spec of the job",
    "spec_sha256": "SHA-256 of the spec's canonical JSON, in hexadecimal",
    "step": "optimizer steps that were finished by then",
    "steps_per_s": "optimizer steps in a second",
    "sub": "user or service that the token names; empty where nothing could be believed",
    "submission_id": "id of the event that asked for it",
    "to_partition": "partition of control that the pool goes to",
    "token_id": "id of the token; empty where there was none to believe",  # nosec B105  # a description
    "user": "who asked for it",
}
