"""Attempts of one job's rank to reach what is another's in the object store, on a real server: each must fail, and all are counted."""

from __future__ import annotations

import base64
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.security.store_lease_support import Attempt, allocation, asked, fresh, plain, settings_of
from trainhouse.checkpointing.chain.chunks import SHARED_PREFIX, chunk_key, chunks_prefix
from trainhouse.checkpointing.chain.commits import commit_key
from trainhouse.checkpointing.errors import CheckpointError
from trainhouse.checkpointing.lease.access_rule import Ask, Operation
from trainhouse.checkpointing.lease.lease_client import LeaseClient
from trainhouse.checkpointing.lease.lease_facts import owner_key
from trainhouse.workers.agent.launch.lease_socket import StoreLeases
from trainhouse.workers.own_states import node_key, saver_key

if TYPE_CHECKING:
    from trainhouse.deploy.local.servers.seaweedfs import StoreServer

pytestmark = pytest.mark.stack
CANARY = b"canary: what another project has trained"
SHA = hashlib.sha256(CANARY).hexdigest()


@pytest.fixture(scope="module")
def leases(object_store_endpoint: StoreServer) -> Iterator[StoreLeases]:
    made = StoreLeases(settings_of(object_store_endpoint))
    yield made
    made.close()


@pytest.fixture(scope="module")
def other(object_store_endpoint: StoreServer, leases: StoreLeases, tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """Another project's job, with a checkpoint, a tag, a rank's own state, and a chunk from when all jobs' lay together."""
    made = Attempt.begun(object_store_endpoint, leases, tmp_path_factory.mktemp("other"), allocation(fresh("other"), 3, "vision"))
    job = str(made.told.job_id)
    made.store().put(chunk_key(SHA, chunks_prefix(job)), CANARY)
    made.store().put_if_absent(commit_key(job, 0), CANARY)
    for key in (f"jobs/{job}/tags/release", node_key(job, 3, "n1"), chunk_key(SHA, SHARED_PREFIX), f"code/{SHA}.tar.gz", "archive/canary"):
        plain(object_store_endpoint).put(key, CANARY)
    return made


@pytest.fixture(scope="module")
def mine(object_store_endpoint: StoreServer, leases: StoreLeases, other: Attempt, tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """The attacker's own attempt: it says that it resumes from the other project's job."""
    told = allocation(fresh("mine"), 4, "lm", resume_from=str(other.told.job_id))
    made = Attempt.begun(object_store_endpoint, leases, tmp_path_factory.mktemp("mine"), told)
    made.store().put_if_absent(commit_key(str(told.job_id), 0), b"my own")
    return made


def foreign_keys(mine: str, other: str) -> list[str]:
    """Keys of others, spelled in all the ways that came to mind."""
    plain_ones = [
        commit_key(other, 0),
        chunk_key(SHA, chunks_prefix(other)),
        chunk_key(SHA, SHARED_PREFIX),
        f"jobs/{other}/tags/release",
        node_key(other, 3, "n1"),
        owner_key(other),
        owner_key(mine),
        f"code/{SHA}.tar.gz",
        "archive/canary",
        saver_key(mine, 5, 1),
        saver_key(mine, 3, 1),
        node_key(mine, 4, "n1"),
    ]
    target = commit_key(other, 0)
    spelled = [f"jobs/{mine}/../{other}/commits/0000000000", f"jobs/{mine}/commits/../../../{target}", f"jobs/{mine}/./../{target[5:]}"]
    spelled += [
        f"/{target}",
        f"//{target}",
        target.replace("/", "%2F"),
        target.replace("/", "%252f"),
        target.replace("/", "\\"),
        f"{target}/",
    ]
    spelled += [
        f"{target}?x",
        f"{target}#",
        f"{target}\x00",
        f"jobs/{mine}/commits/0000000000/../../../{target}",
        f"jobs/{mine}%2f..%2f{target[5:]}",
    ]
    spelled += [f"jobs/{mine}/chunks/ab/../../../../{target}", f"jobs/{mine}\n/{target}", target.upper(), target + " "]
    return plain_ones + spelled


def test_no_probe_of_a_rank_reaches_what_is_anothers(object_store_endpoint: StoreServer, mine: Attempt, other: Attempt) -> None:
    """Through the agent: every operation on every key; then with what was signed for oneself, changed in every way."""
    tried: Counter[str] = Counter()
    won: list[str] = []
    job, foe = str(mine.told.job_id), str(other.told.job_id)
    leave = LeaseClient(mine.paths.store_socket)
    allowed_by_right = {(Operation.GET, node_key(job, 4, "n1")), (Operation.HEAD, node_key(job, 4, "n1"))}
    allowed_by_right |= {(o, saver_key(job, e, 1)) for o in (Operation.GET, Operation.HEAD) for e in (3, 5)}
    allowed_by_right.add((Operation.DELETE, saver_key(job, 3, 1)))  # what its own earlier attempts left, it may remove

    for operation in Operation:
        for key in foreign_keys(job, foe):
            if (operation, key) in allowed_by_right:
                continue
            upload = operation in (Operation.PUT_PART, Operation.COMPLETE_UPLOAD, Operation.ABORT_UPLOAD)
            ask = Ask(operation, key, upload_id="a-1" if upload else "", part=int(operation is Operation.PUT_PART))
            tried[f"asked for {operation.value}"] += 1
            if _is_signed(leave, ask):
                won.append(str(ask))
    for prefix in ("", "j", "jobs/", "jobs", f"jobs/{foe}/", f"jobs/{foe}/commits/", "chunks/", "code/", f"jobs/{job}", "archive/", "/"):
        tried["asked for list of a prefix"] += 1
        if _is_signed(leave, Ask(Operation.LIST, prefix)):
            won.append(f"list of {prefix!r}")
    for what, attack in changed(leave, object_store_endpoint, job, foe):
        tried[what] += 1
        status, body = attack()
        if status < 300 or CANARY in body or foe.encode() in body.split(b"<Resource>")[0]:
            won.append(f"{what}: {status} {body[:200]!r}")
    print(f"{tried.total()} probes, {len(won)} succeeded: {dict(tried)}")
    assert tried.total() >= 200 and won == []
    assert plain(object_store_endpoint).get(commit_key(foe, 0)) == CANARY


def _is_signed(leave: LeaseClient, ask: Ask) -> bool:
    try:
        leave.sign(ask)
    except CheckpointError:
        return False
    return True


Attack = Callable[[], tuple[int, bytes]]


def changed(leave: LeaseClient, server: StoreServer, job: str, foe: str) -> Iterator[tuple[str, Attack]]:
    """Requests that were signed for one's own key, then changed."""
    own, target = commit_key(job, 0), commit_key(foe, 0)
    put_key = chunk_key(hashlib.sha256(b"new").hexdigest(), chunks_prefix(job))

    def signed(operation: Operation, key: str, **more: object) -> tuple[str, dict[str, str]]:
        url, headers = leave.sign(Ask(operation, key, **more))  # type: ignore[arg-type]
        return url, dict(headers)

    get, _ = signed(Operation.GET, own)
    put, summed = signed(Operation.PUT, put_key)
    listed, _ = signed(Operation.LIST, f"jobs/{job}/commits/")
    quoted = quote(own, safe="/-_.~")
    for spelled in {
        target,
        target.replace("/", "%2F"),
        f"jobs/{job}/../{foe}/commits/0000000000",
        f"{own}/../../../{foe}/commits/0000000000",
    }:
        for method in ("GET", "HEAD", "PUT", "DELETE"):
            yield "another key in the URL", lambda m=method, s=spelled: asked(m, get.replace(quoted, s), body=b"x" if m == "PUT" else None)  # type: ignore[misc]
    for method in ("PUT", "DELETE", "POST", "HEAD"):
        yield "another method", lambda m=method: asked(m, get, body=b"x" if m in ("PUT", "POST") else None)  # type: ignore[misc]
    for more in ("prefix=", f"prefix=jobs/{foe}/", "delimiter=/", "versions", "uploads", "acl", "policy", "max-keys=1", "marker=a"):
        yield "more in the query of a list", lambda m=more: asked("GET", f"{listed}&{m}")  # type: ignore[misc]
        yield "more in the query of a get", lambda m=more: asked("GET", f"{get}&{m}")  # type: ignore[misc]
    yield "another prefix", lambda: asked("GET", listed.replace(quote(f"jobs/{job}/", safe=""), quote(f"jobs/{foe}/", safe="")))
    for source in (f"/{server.bucket}/{target}", f"{server.bucket}/{target}", quote(f"{server.bucket}/{target}", safe="")):
        yield "a copy by a header", lambda s=source: asked("PUT", put, {**summed, "x-amz-copy-source": s})  # type: ignore[misc]
    for name, value in [
        ("x-amz-acl", "public-read"),
        ("x-amz-copy-source-range", "bytes=0-9"),
        ("x-amz-tagging", "a=b"),
        ("x-amz-website-redirect-location", f"/{target}"),
        ("x-amz-meta-a", "b"),
    ]:
        yield (
            "another header of Amazon's",
            lambda n=name, v=value: _kept_out(asked("PUT", put, {**summed, n: v}, b"new"), server, put_key, n),
        )  # type: ignore[misc]
    conditional, headers = signed(Operation.PUT, commit_key(job, 0), if_absent=True)
    for left_out in ({}, {"x-amz-checksum-crc32": "AAAAAA=="}, {"x-amz-checksum-sha256": base64.b64encode(bytes(32)).decode()}):
        yield "a checksum left out or made another", lambda h=left_out: asked("PUT", put, h, b"new")  # type: ignore[misc]
    yield "other bytes", lambda: asked("PUT", put, summed, b"old")
    yield "a condition left out", lambda: asked("PUT", conditional, {}, b"mine again")
    yield "a condition made another", lambda: asked("PUT", conditional, {"if-none-match": '"x"'}, b"mine again")
    assert headers == {"if-none-match": "*"}
    part, _ = signed(Operation.GET, own, span=(0, 1))
    yield "a range left out", lambda: asked("GET", part)
    yield "a range made another", lambda: asked("GET", part, {"range": "bytes=0-5"})
    for name, value in [("Expires", "86400"), ("Date", "20990101T000000Z"), ("Credential", "AKIA/20260101/us-east-1/s3/aws4_request")]:
        head, _, rest = get.partition(f"X-Amz-{name}=")
        yield (
            "other words in the signature",
            lambda h=head, n=name, v=value, r=rest: asked("GET", f"{h}X-Amz-{n}={quote(v, safe='')}&{r.partition('&')[2]}"),
        )  # type: ignore[misc]
    for removed in ("X-Amz-Signature", "X-Amz-SignedHeaders", "X-Amz-Algorithm", "X-Amz-Date"):
        base, _, query = get.partition("?")
        kept = "&".join(p for p in query.split("&") if not p.startswith(removed))
        yield "a part of the signature left out", lambda b=base, k=kept: asked("GET", f"{b}?{k}")  # type: ignore[misc]
    yield "no signature", lambda: asked("GET", f"{server.endpoint}/{server.bucket}/{target}")
    yield "another bucket", lambda: asked("GET", get.replace(f"/{server.bucket}/", "/other-bucket/"))
    for seed in range(20):
        yield "a signature of chance", lambda s=seed: asked("GET", _with_signature(get.replace(quoted, target), s))  # type: ignore[misc]


def _kept_out(answer: tuple[int, bytes], server: StoreServer, key: str, header: str) -> tuple[int, bytes]:
    """A store may ignore a header that was not signed; what it must not do is act on it."""
    status, body = answer
    if status >= 300:
        return answer
    found = plain(server)._client().head_object(Bucket=server.bucket, Key=key)
    acted = bool(found.get("Metadata") or found.get("WebsiteRedirectLocation"))
    return (200, body) if acted else (403, b"ignored")


def _with_signature(url: str, seed: int) -> str:
    head, mark, rest = url.partition("X-Amz-Signature=")
    return head + mark + f"{random.Random(seed).getrandbits(256):064x}" + rest[64:]


def test_own_things_are_still_within_reach(mine: Attempt) -> None:
    job = str(mine.told.job_id)
    store = mine.store()
    assert store.get(commit_key(job, 0)) == b"my own"
    assert [found.key for found in store.list(f"jobs/{job}/commits/")] == [commit_key(job, 0)]
    assert store.stat(commit_key(job, 7)) is None
    store.delete(node_key(job, 3, "gone"))


def test_a_job_of_the_same_project_is_resumed_from_and_a_shared_chunk_is_read_only_if_one_of_the_two_named_it(
    object_store_endpoint: StoreServer, leases: StoreLeases, other: Attempt, tmp_path: Path
) -> None:
    foe = str(other.told.job_id)
    told = allocation(fresh("heir"), 1, "vision", resume_from=foe)
    heir = Attempt.begun(object_store_endpoint, leases, tmp_path, told).store()
    assert heir.get(chunk_key(SHA, chunks_prefix(foe))) == CANARY and heir.get(commit_key(foe, 0)) == CANARY
    with pytest.raises(CheckpointError, match="not among the rights"):
        heir.put(commit_key(foe, 0), b"mine now")
    with pytest.raises(CheckpointError, match="not among the rights"):
        heir.get(chunk_key(SHA, SHARED_PREFIX))
