"""Tunnels to interactive jobs: the request for one, and the websockets of its two ends.

Holds: only a job's own user, or an operator, gets one. The job's node calls back, so nothing listens there. What passes is not
read, but for the form of a host key in the job's first line. A tunnel ends with either side, and with its user's rights.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import structlog
from fastapi import APIRouter, Path, Request, WebSocket, WebSocketDisconnect
from pydantic import BaseModel, Field
from starlette.websockets import WebSocketState

from trainhouse.events import JobId, JobState, JobSubmitted, NodeId, OpenTunnel
from trainhouse.events.security.signing import HEADER
from trainhouse.events.tunnel.host_keys import FirstLine, HostKeyError
from trainhouse.events.tunnel.tunnel_call import TICKET_HEADER
from trainhouse.events.wire.topics import OPERATIONS
from trainhouse.gateway import problems, requests
from trainhouse.gateway.auth.authentication import Submitter
from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.context import Gateway, Here, address_of, now_ms
from trainhouse.gateway.errors import ProblemError, SqlRefusedError, SqlUnavailableError
from trainhouse.gateway.routes.jobs import JobPath, visible_job
from trainhouse.gateway.tunnels.tunnel_desk import Tunnel

log = structlog.get_logger(__name__)
router = APIRouter(tags=["jobs"])

NODE_S: Final = 20.0
CLIENT_S: Final = 20.0
RIGHTS_S: Final = 5.0
AGAIN_S: Final = 0.05
REFUSED_LOOK_S: Final = 1.0
LOST, NO_RIGHTS = 1011, 1008
NODE_LOST: Final = "the connection to the job's node was lost; what runs there goes on unless the node stays lost, attach again"
_RUNS = frozenset({JobState.INITIALIZING, JobState.RUNNING, JobState.CHECKPOINTING})
_INTERACTIVE = """
SELECT JSONExtractRaw(json, 'spec', 'interactive') AS found FROM events_rows FINAL
WHERE job_id = {job_id:String} AND type = {type:String} ORDER BY time LIMIT 1
"""
_PLACE = """
SELECT node_id FROM ranks WHERE job_id = {job_id:String} AND epoch = {epoch:UInt32} AND rank = 0 AND node_id != '' LIMIT 1
"""
_KEY = "SELECT public_key FROM node_keys_rows FINAL WHERE node_id = {node:String} AND pool = {pool:String} LIMIT 1"
# The node's word on a request: rows of its audit go by the request's id.
_REFUSED = """
SELECT node_id, reason FROM audit WHERE access_id = {id:String} AND kind = 'refused' AND vouched = {vouched:String} LIMIT 1
"""

TunnelId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$", description="Id of the tunnel.")]


class TunnelOpened(BaseModel):
    """A tunnel that the job's node has answered; it waits for its user for some seconds."""

    job_id: str
    tunnel: str = Field(description="id of the tunnel")
    ticket: str = Field(description=f"secret that connects with it once, in the header {TICKET_HEADER}")
    url: str = Field(description="address of the gateway process that holds it; empty: the one that was asked")


@router.post("/v1/training-jobs/{job_id}/tunnels")
async def open_tunnel(job_id: JobPath, here: Here, principal: Submitter, request: Request) -> TunnelOpened:
    """Opens a tunnel to an interactive job that runs: its node calls this gateway, then its user does, by GET /v1/tunnels/TUNNEL."""
    job = await visible_job(here, principal, job_id)
    requests.refuse_read_only(job["project"], principal)
    await _check(here, principal, job)
    url = here.settings.tunnel_url or here.settings.url
    if not url:
        raise ProblemError(
            503, "No tunnels", "this gateway does not know its own address: its operator sets TRAINHOUSE_GATEWAY_URL, for agents to call"
        )
    place = await here.reader.one(_PLACE, {"job_id": job_id, "epoch": job["epoch"]})
    if place is None:
        raise _not_yet(job_id, "where it runs is not known yet")
    tunnel = here.tunnels.open(principal, await _key_of(here, place["node_id"], job))
    try:
        event = OpenTunnel(
            request_id=tunnel.tunnel_id,
            node_id=NodeId(place["node_id"]),
            job_id=JobId.parse(job_id),
            expires_at_ms=now_ms() + round(NODE_S * 1000),
            requested_by=requests.requested_by(principal),
            host=address_of(request),
            url=url,
            nonce=tunnel.nonce,
        )
        sent = await (here.operations or here.bus).send(OPERATIONS, event, tunnel.tunnel_id, key=place["node_id"])
        here.accepted(request, principal, sent, target=job_id, project=job["project"])
        refusal = await asyncio.wait_for(_answer(here, tunnel), NODE_S)
    except TimeoutError as error:
        await here.tunnels.end(tunnel)
        why = "is its agent up (`trainhouse nodes`), does it reach this gateway, and does it list this gateway's operations key?"
        raise ProblemError(
            504, "No answer", f"node {place['node_id']} of job {job_id} did not call back in {NODE_S:.0f} s: {why}"
        ) from error
    except BaseException:
        await here.tunnels.end(tunnel)
        raise
    if refusal:
        await here.tunnels.end(tunnel)
        raise ProblemError(409, "Not connected", f"job {job_id}: {refusal}")
    _expires(here, tunnel)
    return TunnelOpened(job_id=job_id, tunnel=tunnel.tunnel_id, ticket=tunnel.ticket, url=here.settings.tunnel_url)


async def _check(here: Gateway, principal: Principal, job: dict[str, Any]) -> None:
    """Raises ProblemError where this job is not to be connected with this user, or not now."""
    job_id, state = job["job_id"], JobState(job["state"])
    spec = await here.reader.one(_INTERACTIVE, {"job_id": job_id, "type": JobSubmitted.event_type})
    if spec is None or spec["found"] in ("", "null"):
        raise ProblemError(
            409, "Not interactive", f"job {job_id} is not interactive: start one by `trainhouse shell` or `trainhouse notebook`"
        )
    if job["user"] != principal.sub and not principal.may(Role.OPERATOR):
        raise ProblemError(403, "Forbidden", f"job {job_id} is {job['user']}'s: only its user or an operator works in it")
    if state.final:
        raise ProblemError(409, "Ended", f"job {job_id} has ended: it is {state}" + (f": {job['reason']}" if job["reason"] else ""))
    if state not in _RUNS:
        raise _not_yet(job_id, f"it is {state}")


async def _key_of(here: Gateway, node_id: str, job: dict[str, Any]) -> str:
    """The key that the node has to sign its call with. Raises ProblemError where it has none."""
    found = await here.reader.one(_KEY, {"node": node_id, "pool": job["pool"]})
    if found is not None and found["public_key"]:
        return str(found["public_key"])
    if here.settings.tunnels_to_unsigned_nodes:
        return ""
    why = (
        f"node {node_id} of job {job['job_id']} has no known key, so nothing shows that a call is its own. Its agent announces one when it "
        "starts with sign_reports; after `trainhouse node forget-key` its operator starts it again"
    )
    raise ProblemError(409, "No key", why)


async def _answer(here: Gateway, tunnel: Tunnel) -> str:
    """The node's refusal, empty where it called back. A node that refuses the request itself does not call: its audit has the reason."""
    while True:
        done, _ = await asyncio.wait({tunnel.answered}, timeout=REFUSED_LOOK_S)
        if done:
            return tunnel.answered.result()
        try:
            found = await here.reader.one(_REFUSED, {"id": tunnel.tunnel_id, "vouched": "node" if tunnel.node_key else "unsigned"})
        except (SqlUnavailableError, SqlRefusedError):
            continue
        if found is not None and not tunnel.answered.done():
            return f"node {found['node_id']} refused: {found['reason']}"


def _not_yet(job_id: str, why: str) -> ProblemError:
    return ProblemError(425, "Not yet", f"job {job_id} cannot be reached yet: {why}; ask again in a moment")


def _expires(here: Gateway, tunnel: Tunnel) -> None:
    """Ends a tunnel whose user does not come."""

    async def wait() -> None:
        try:
            await asyncio.wait_for(tunnel.joined.wait(), CLIENT_S)
        except TimeoutError:
            await here.tunnels.end(tunnel)

    tunnel.waiting = asyncio.create_task(wait())


@router.websocket("/v1/tunnels/{tunnel_id}/node")
async def of_node(websocket: WebSocket, tunnel_id: TunnelId) -> None:
    """Serves the node's end: a first message with its answer, then bytes."""
    here: Gateway = websocket.app.state.gateway
    tunnel = here.tunnels.find(tunnel_id)
    if tunnel is None or tunnel.node is not None or not tunnel.is_called_by_node(websocket.headers.get(HEADER)):
        await _refused(websocket, "its node, by the node's own key, or it is over")
        return
    tunnel.node = websocket
    await websocket.accept()
    code, reason = 1000, ""
    try:
        answer = await websocket.receive_json()
        refusal = str(answer.get("error", "")) if isinstance(answer, dict) else "its node said nothing that can be read"
        if not tunnel.answered.done():
            tunnel.answered.set_result(refusal[:1000])
        await tunnel.joined.wait()
        if tunnel.client is not None:
            code, reason = await _passed_on(websocket, tunnel.client, FirstLine())
    except HostKeyError as error:
        code, reason = NO_RIGHTS, str(error)
    except (WebSocketDisconnect, ValueError, KeyError):
        code, reason = LOST, NODE_LOST
    finally:
        await here.tunnels.end(tunnel, code, reason)


@router.websocket("/v1/tunnels/{tunnel_id}")
async def of_client(websocket: WebSocket, tunnel_id: TunnelId) -> None:
    """Serves the user's end."""
    here: Gateway = websocket.app.state.gateway
    tunnel = here.tunnels.find(tunnel_id)
    if tunnel is None or tunnel.client is not None or not tunnel.is_users(websocket.headers.get(TICKET_HEADER)):
        await _refused(websocket, "its user, by the ticket of POST /v1/training-jobs/JOB/tunnels, once and soon")
        return
    if over := here.rights_over(tunnel.principal):
        await _refused(websocket, f"who has rights, and {over}")
        return
    tunnel.client = websocket
    await websocket.accept()
    tunnel.joined.set()
    watch = asyncio.create_task(_watched(here, tunnel))
    try:
        await _passed_on(websocket, tunnel.node)
        if websocket.client_state is WebSocketState.CONNECTED and tunnel.node is not None:
            # The node has closed its end: what it sent before is still to be passed on, by `of_node`, which then ends the tunnel.
            async with asyncio.timeout(CLIENT_S):
                while not tunnel.is_over:
                    await asyncio.sleep(AGAIN_S)
    except TimeoutError:
        pass
    finally:
        watch.cancel()
        await here.tunnels.end(tunnel)


async def _passed_on(one: WebSocket, other: Any, first: FirstLine | None = None) -> tuple[int, str]:
    """Passes messages on until this side is closed; the code and reason for the other side: NODE_LOST where the end was none.

    `first`: looks at the first line. Raises HostKeyError."""
    while True:
        message = await one.receive()
        if message["type"] == "websocket.disconnect":
            return (1000, "") if message.get("code") == 1000 else (LOST, NODE_LOST)
        data = message.get("bytes") or b""
        if first is not None:
            first.check(data)
        try:
            await other.send_bytes(data)
        except (WebSocketDisconnect, RuntimeError):
            return LOST, NODE_LOST


async def _watched(here: Gateway, tunnel: Tunnel) -> None:
    """Ends a tunnel whose user loses its rights."""
    while not tunnel.is_over:
        await asyncio.sleep(RIGHTS_S)
        if over := here.rights_over(tunnel.principal):
            await here.tunnels.end(tunnel, NO_RIGHTS, over)


async def _refused(websocket: WebSocket, needed: str) -> None:
    address = websocket.client.host if websocket.client else ""
    log.warning("a connection with a tunnel is refused", path=websocket.url.path, address=address)
    problem = ProblemError(404, "No tunnel", f"there is no such tunnel here that waits for a connection: one connects {needed}")
    await websocket.send_denial_response(problems.answer(problem, websocket.url.path))
