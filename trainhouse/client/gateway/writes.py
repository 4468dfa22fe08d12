"""Writes over the gateway, as flows: submit, cancel, change, send code.

Holds: pure; a change is told as done only when its scheduler has it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from trainhouse.client.backend_protocol import Retuned, Submitted
from trainhouse.client.code_archive import PackedCode
from trainhouse.client.errors import ChangeRefusedError, JobEndedError, NoReplyError, UnknownJobError
from trainhouse.client.gateway.exchange import Flow, NotFoundError, Request, ask
from trainhouse.client.gateway.reads import JOBS, events, job_path, of_job, status_of
from trainhouse.events import CodeArchive, JobId, JobReviewed, JobSpec, Limits, ReviewAction

CODE = "/v1/code"
POLL_S = 0.25
BINARY = {"Content-Type": "application/octet-stream"}


@dataclass(frozen=True)
class Written:
    """Accepted write of the gateway. `after` makes later reads wait for it."""

    job_id: str
    event_id: str
    after: str
    spec_sha256: str = ""

    def submitted(self) -> Submitted:
        """Returns the submission to follow, where the write is one."""
        return Submitted(JobId.parse(self.job_id), self.event_id, None, self.spec_sha256)


def submit(spec: JobSpec, job_id: str | None, key: str | None) -> Flow[Written]:
    """Submits a spec. `key` (Idempotency-Key) makes a repeat harmless. Raises InvalidSpecError, AccessDeniedError, UnknownJobError (of
    its source)."""
    body: dict[str, Any] = {"spec": spec.model_dump(mode="json", exclude_unset=True)} | ({"job_id": job_id} if job_id else {})
    headers = {"Idempotency-Key": key} if key else {}
    try:
        answer = (yield from ask(Request("POST", JOBS, body=body, headers=headers))).json()
    except NotFoundError as error:
        raise UnknownJobError(spec.resume_from or "") from error
    return Written(answer["job_id"], answer["event_id"], answer["after"], answer["spec_sha256"])


def rerun(job_id: str, after: str | None) -> Flow[Written]:
    """Submits a job's spec again. Raises UnknownJobError, InvalidSpecError, AccessDeniedError."""
    request = Request("POST", job_path(job_id, "rerun"), {"after": after} if after else {})
    answer = (yield from of_job(job_id, request)).json()
    return Written(answer["job_id"], answer["event_id"], answer["after"], answer["spec_sha256"])


def cancel(job_id: str, reason: str, after: str | None) -> Flow[Written]:
    """Asks that a job end. Raises UnknownJobError."""
    request = Request("POST", job_path(job_id, "cancel"), {"after": after} if after else {}, {"reason": reason})
    answer = (yield from of_job(job_id, request)).json()
    return Written(answer["job_id"], answer["event_id"], answer["after"])


def change_tags(job_id: str, tags: Mapping[str, str], remove: Sequence[str], after: str | None) -> Flow[Written]:
    """Sets and removes tags of a job. Raises UnknownJobError."""
    body = {"set": dict(tags), "remove": list(remove)}
    request = Request("POST", job_path(job_id, "tags"), {"after": after} if after else {}, body)
    answer = (yield from of_job(job_id, request)).json()
    return Written(answer["job_id"], answer["event_id"], answer["after"])


@dataclass(frozen=True)
class Terms:
    """Changeable terms of a job, as they are. `refused`: why the event that was asked about was refused.

    `answered`: whether the job's scheduler has handled that event, None of a gateway or of tables that do not say so yet; `changed`: what
    it set then, None where nothing was to change.
    """

    now: Retuned
    refused: str | None
    answered: bool | None = None
    changed: Retuned | None = None


def terms(job_id: str, event_id: str | None = None, after: str | None = None, pause_s: float = 0.0) -> Flow[Terms]:
    """A job's priority and limits as its scheduler has them. Raises UnknownJobError."""
    params = {name: value for name, value in (("event_id", event_id), ("after", after)) if value}
    answer = (yield from of_job(job_id, Request("GET", job_path(job_id, "terms"), params, pause_s=pause_s))).json()
    changed = answer.get("changed")  # a gateway of before has neither
    return Terms(_retuned(answer), answer["refused"], answer.get("answered"), None if changed is None else _retuned(changed))


def _retuned(answer: Mapping[str, Any]) -> Retuned:
    return Retuned(answer["priority"], Limits.model_validate(answer["limits"]))


def change(job_id: str, priority: int | None, limits: Mapping[str, Any], timeout_s: float, after: str | None) -> Flow[Retuned | None]:
    """Changes what is named, and asks for the answer to this request; None: nothing was to change. Raises ChangeRefusedError, NoReplyError,
    UnknownJobError, JobEndedError."""
    before = (yield from terms(job_id, after=after)).now
    wanted = Retuned(before.priority if priority is None else priority, Limits.model_validate(before.limits.model_dump() | dict(limits)))
    if wanted == before:
        return None
    body: dict[str, Any] = {"priority": priority} if priority is not None else {}
    body |= {"limits": wanted.limits.model_dump(mode="json")} if limits else {}
    sent = (yield from of_job(job_id, Request("POST", job_path(job_id, "change"), body=body))).json()
    for _ in range(max(1, round(timeout_s / POLL_S))):
        # The server waits until it can read the request; what comes of it follows within moments.
        found = yield from terms(job_id, sent["event_id"], sent["after"], POLL_S)
        if found.refused is not None:
            raise ChangeRefusedError(found.refused)
        if found.changed is not None:
            return found.changed
        if found.answered is None and found.now == wanted:
            return wanted
        state = status_of((yield from of_job(job_id, Request("GET", job_path(job_id)))).json()).state
        if state.final:
            raise JobEndedError(job_id, state)
        if found.answered:
            return None
    if found.now == wanted:
        return wanted  # of its decisions a projector of before may have made the rows, which name no request
    raise NoReplyError(
        f"a change of job {job_id}: no answer within {timeout_s:g} s. It was sent, and counts as soon as its scheduler gets to it"
    )


def review(job_id: str, action: ReviewAction, reason: str, max_bad: float | None, timeout_s: float, after: str | None) -> Flow[None]:
    """Sends a job to review, or ends its review, and asks until that counts. Raises ChangeRefusedError, NoReplyError, UnknownJobError."""
    body = {"action": action.value, "reason": reason} | ({} if max_bad is None else {"max_bad": max_bad})
    request = Request("POST", job_path(job_id, "review"), {"after": after} if after else {}, body)
    sent = (yield from of_job(job_id, request)).json()
    for _ in range(max(1, round(timeout_s / POLL_S))):
        found = yield from terms(job_id, sent["event_id"], sent["after"], POLL_S)
        if found.refused is not None:
            raise ChangeRefusedError(found.refused)
        reviewed = yield from events(job_id, JobReviewed.event_type, sent["after"])
        if any(JobReviewed.model_validate_json(happening.json).event_id == sent["event_id"] for happening in reviewed):
            return
    raise NoReplyError(
        f"a review of job {job_id}: no answer within {timeout_s:g} s. It was sent, and counts as soon as its scheduler gets to it"
    )


def put_code(code: PackedCode) -> Flow[CodeArchive]:
    """Sends an archive, and what differs from its commit, unless the store has them. Raises CodeTooLargeError by the gateway's words."""
    path = f"{CODE}/{quote(code.sha256, safe='')}"
    try:
        found = (yield from ask(Request("GET", path))).json()
    except NotFoundError:
        found = (yield from ask(Request("PUT", path, content=code.archive, headers=BINARY))).json()
    diff_uri = None
    if code.git_diff:
        diff = Request("PUT", f"{CODE}/diffs/{code.diff_sha256}", content=code.git_diff, headers=BINARY)
        diff_uri = (yield from ask(diff)).json()["uri"]
    return code.stored(found["uri"], diff_uri)
