"""Descriptions of parameters and fields in the OpenAPI document that mean the same wherever they occur.

Holds: what a route or a body says of a name itself comes before these.
"""

from typing import Any, Final

from trainhouse.events.model.common_fields import COMMON_FIELDS
from trainhouse.events.model.job import JobStatus

PARAMETERS: Final = {
    "attempt": "Only of this attempt; the first is 0.",
    "by": "What the sums are grouped by.",
    "columns": "Most cells along the steps.",
    "from": "Whether the newest or the oldest come first.",
    "from_step": "Only from this step on.",
    "kind": "Only of this kind.",
    "metric": "Names of metrics; may be repeated.",
    "name": "Only of this name.",
    "node_id": "The node's id.",
    "pool": "Only of this pool.",
    "project": "Only of this project.",
    "purpose": "Name of the purpose.",
    "rank": "Only of this rank.",
    "rows": "Most cells along the ranks.",
    "rule": "Only of this rule.",
    "source": "Only of this source: scheduled or tracked.",
    "state": "Only in this state.",
    "step": "Step of the checkpoint.",
    "stream": "Only of this stream.",
    "sub": "Only of this user or service.",
    "team": "Only of this team.",
    "to_step": "Only before this step.",
    "user": "Only of this user.",
    "way": "Where the thing came from, what it led to, or both.",
}
IN_PATH: Final = {"pool": "The pool's name.", "user": "The member's name, as in tokens."}
FIELDS: Final = {
    "action": "send to review, go on, or cancel",
    "after": "position of the write: reading with `?after=` waits until it can be read",
    "allocated_at": "time at which the attempt got its devices",
    "answered": "whether the job's scheduler has handled the request; null: the tables are of a version that does not note it",
    "changed": "what the request set; null: nothing was to change, or it was not handled yet",
    "code": "code that signs a browser in once",
    "description": "what it means, for people",
    "detail": "what went wrong, and what to do",
    "event_id": "id of the event on Kafka",
    "finished_at": "time of the end",
    "format": "form of the answer",
    "instance": "request that it is about",
    "items": "the page of the listing",
    "last_checkpoint_commit": "number of the checkpoint that a restart would begin from",
    "last_checkpoint_step": "step of that checkpoint",
    "last_checkpoint_uri": "place of that checkpoint in the object store",
    "limits": "restarts, run time and grace time",
    "next_cursor": "`cursor` of the next page; null: this was the last one",
    "node_ids": "nodes of the attempt",
    "parameters": "values of the statement's parameters, by name",
    "projects": "projects that the token is for; *: all",
    "query": "statement in SQL",
    "refused": "why the request was refused; null: it was not, or not yet",
    "replaces": "version of the project before the change",
    "role": "what the member may do",
    "roles": "roles that the token gives",
    "size_bytes": "size in bytes",
    "source": "scheduled, or tracked",
    "started_at": "time of the first reported step",
    "status": "HTTP status",
    "submitted_at": "time of the submission",
    "title": "kind of the problem, in words",
    "token": "token to make the session of",  # nosec B105  # a description
    "type": "kind of the problem, as a URI",
    "updated_at": "time of this status",
    "uri": "place in the object store",
}


def fill(document: dict[str, Any]) -> None:
    """Describes each parameter and field that has no description of its own."""
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                words = PARAMETERS | IN_PATH if parameter["in"] == "path" else PARAMETERS
                if parameter["name"] in words:
                    parameter.setdefault("description", words[parameter["name"]])
    of_jobs = {name: field.description for name, field in JobStatus.model_fields.items() if field.description}
    words = COMMON_FIELDS | of_jobs | FIELDS
    for schema in document["components"]["schemas"].values():
        for name, field in schema.get("properties", {}).items():
            if name in words:
                field.setdefault("description", words[name])
