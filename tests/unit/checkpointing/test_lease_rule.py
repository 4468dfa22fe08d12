"""What an attempt may do in the object store, as a rule."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainhouse.checkpointing.chain.chunks import chunk_key, chunks_prefix
from trainhouse.checkpointing.chain.commits import chain_prefix, commit_key
from trainhouse.checkpointing.chain.references import used_by_key
from trainhouse.checkpointing.lease.access_rule import Ask, DatasetLease, Lease, Operation, hash_in, is_artifact_of_another, refusal
from trainhouse.checkpointing.lease.policy import policy_of
from trainhouse.events.model import artifact_keys
from trainhouse.events.model.dataset_keys import datasets_prefix, index_key, manifest_key, profiles_key, shard_key
from trainhouse.events.model.model_content import content_key, models_prefix, pin_key
from trainhouse.workers.own_states import job_prefix, node_key, nodes_prefix, saver_key

SHA = "ab" * 32
MINE = Lease("mine", 4, resumes="old", shared_chunks=frozenset({SHA}))
WRITES = [o for o in Operation if o not in (Operation.GET, Operation.HEAD, Operation.LIST)]


def allowed(operation: Operation, key: str, **more: object) -> bool:
    return refusal(MINE, Ask(operation, key, **more)) is None  # type: ignore[arg-type]


def test_what_ranks_do_is_allowed() -> None:
    chunk = chunk_key(SHA, chunks_prefix("mine"))
    for key in (chunk, commit_key("mine", 7)):
        assert allowed(Operation.GET, key) and allowed(Operation.HEAD, key) and allowed(Operation.PUT, key)
        assert allowed(Operation.PUT, key, if_absent=True) and allowed(Operation.GET, key, span=(0, 9))
    assert allowed(Operation.CREATE_UPLOAD, chunk) and allowed(Operation.PUT_PART, chunk, upload_id="ab-1", part=3)
    assert allowed(Operation.COMPLETE_UPLOAD, chunk, upload_id="ab-1") and allowed(Operation.ABORT_UPLOAD, chunk, upload_id="ab-1")
    assert allowed(Operation.LIST, chain_prefix("mine"), start_after=commit_key("mine", 3))
    assert allowed(Operation.LIST, "jobs/mine/tags/") and allowed(Operation.GET, "jobs/mine/tags/release")
    assert allowed(Operation.PUT, saver_key("mine", 4, 10), if_absent=True) and allowed(Operation.GET, saver_key("mine", 4, 10))
    assert allowed(Operation.LIST, nodes_prefix("mine", 4)) and allowed(Operation.GET, node_key("mine", 4, "n1"))
    assert allowed(Operation.LIST, job_prefix("mine")) and allowed(Operation.DELETE, node_key("mine", 3, "n1"))


def test_of_the_tags_of_its_job_an_attempt_moves_the_best_one_alone() -> None:
    best = "jobs/mine/tags/best"
    assert allowed(Operation.PUT, best) and not allowed(Operation.DELETE, best)
    for other in ("jobs/mine/tags/release", "jobs/mine/tags/best2", "jobs/old/tags/best", used_by_key("mine", "best")):
        assert not any(allowed(operation, other) for operation in WRITES)
    written = policy_of(MINE, "b")["Statement"][1]["Resource"]
    assert [r for r in written if "/tags/" in r and "/jobs/mine/" in r] == ["arn:aws:s3:::b/jobs/mine/tags/best"]


def test_the_job_to_resume_from_is_read_alone() -> None:
    chunk = chunk_key(SHA, chunks_prefix("old"))
    assert allowed(Operation.GET, chunk) and allowed(Operation.GET, commit_key("old", 1)) and allowed(Operation.LIST, chain_prefix("old"))
    assert not any(allowed(operation, key, upload_id="") for operation in WRITES for key in (chunk, commit_key("old", 1)))
    assert not allowed(Operation.LIST, "jobs/old/tags/") and not allowed(Operation.GET, node_key("old", 1, "n1"))
    assert allowed(Operation.GET, "jobs/old/tags/best") and not allowed(Operation.GET, "jobs/old/tags/release")


def test_of_the_job_to_resume_from_one_thing_is_written() -> None:
    key = used_by_key("old", "mine")
    assert allowed(Operation.PUT, key) and allowed(Operation.GET, key)
    for other in (used_by_key("old", "other"), used_by_key("other", "mine"), used_by_key("mine", "mine"), "jobs/old/tags/mine"):
        assert not any(allowed(operation, other) for operation in WRITES)
    assert not any(allowed(operation, key) for operation in WRITES if operation is not Operation.PUT)
    assert not any(refusal(Lease("mine", 4), Ask(operation, key)) is None for operation in Operation)
    written = policy_of(MINE, "b")["Statement"][1]["Resource"]
    assert [r for r in written if "/jobs/mine/" not in r] == [f"arn:aws:s3:::b/{key}"]
    long = "x" * 128
    assert refusal(Lease(long, 4), Ask(Operation.GET, used_by_key(long, long))) is None, "its own pruning reads it"


def test_artifacts_of_the_job_are_added_under_their_hash_and_never_replaced() -> None:
    key = f"artifacts/mine/{SHA}"
    assert allowed(Operation.PUT, key, if_absent=True) and allowed(Operation.GET, key) and allowed(Operation.HEAD, key)
    assert not any(allowed(operation, key) for operation in WRITES)
    assert not any(allowed(Operation.PUT, other, if_absent=True) for other in (f"artifacts/old/{SHA}", "artifacts/mine/name", f"{key}/x"))
    assert not allowed(Operation.LIST, "artifacts/mine/") and not allowed(Operation.GET, f"artifacts/old/{SHA}")


def test_of_other_epochs_nothing_is_written_and_of_newer_ones_nothing_removed() -> None:
    for epoch in (3, 5):
        assert not allowed(Operation.PUT, saver_key("mine", epoch, 1))
    assert not allowed(Operation.PUT, node_key("mine", 4, "n1")), "agents write those"
    assert not allowed(Operation.DELETE, node_key("mine", 4, "n1")) and not allowed(Operation.DELETE, node_key("mine", 5, "n1"))
    assert not allowed(Operation.DELETE, commit_key("mine", 1)) and not allowed(Operation.DELETE, chunk_key(SHA, chunks_prefix("mine")))


def test_of_the_chunks_of_all_jobs_those_are_read_that_are_named() -> None:
    assert allowed(Operation.GET, f"chunks/ab/{SHA}") and not allowed(Operation.PUT, f"chunks/ab/{SHA}")
    other = "cd" * 32
    assert not allowed(Operation.GET, f"chunks/cd/{other}") and not allowed(Operation.HEAD, f"chunks/cd/{other}")
    assert not allowed(Operation.LIST, "chunks/")


@pytest.mark.parametrize(
    "key",
    [
        "jobs/other/commits/0000000000",
        "jobs/mine/owner",
        "jobs/mine/../other/commits/0000000000",
        "jobs/mine//commits/0000000000",
        "jobs/mine/commits/0000000000/",
        "jobs/mine/commits/0000000000\n",
        "jobs/mine%2f..%2fother/commits/0000000000",
        "/jobs/mine/commits/0000000000",
        "jobs/mine/commits/00000000٠0",
        "jobs/mine/commits/0000000000?versionId=1",
        f"jobs/mine/chunks/cd/{SHA}",
        f"jobs/mine/chunks/ab/{SHA}/x",
        "code/" + SHA + ".tar.gz",
        "archive/x",
        "jobs/",
        "jobs/mine",
        "jobs/mine/",
        "",
    ],
)
def test_no_other_spelling_is_allowed(key: str) -> None:
    assert not any(allowed(operation, key) for operation in Operation)


def test_an_operation_takes_what_is_its_own_only() -> None:
    assert not allowed(Operation.PUT, commit_key("mine", 1), upload_id="x", part=1)
    assert not allowed(Operation.GET, commit_key("mine", 1), upload_id="x")
    assert not allowed(Operation.LIST, chain_prefix("mine"), start_after="jobs/other/commits/0000000000")
    assert not allowed(Operation.LIST, chain_prefix("mine"), start_after="jobs/mine/commits/&prefix=jobs/other")
    for upload_id in ("", "../../other", "a/b", "a&uploads", "a b", ".x"):
        assert not allowed(Operation.PUT_PART, chunk_key(SHA, chunks_prefix("mine")), upload_id=upload_id, part=1)


def test_a_put_states_the_crc32_of_its_body_and_nothing_else_does() -> None:
    assert all(
        allowed(Operation.PUT, commit_key("mine", 1), crc32=base64.b64encode(crc).decode()) for crc in (bytes(4), b"\xff" * 4, b"abcd")
    )
    for crc32 in ("AAAAAA=", "AAAAAB==", "AAAAAA==\n", "AAAA\n===", "AAAAAA==, x", "AAAAAAAA", "x"):
        assert not allowed(Operation.PUT, commit_key("mine", 1), crc32=crc32)
    assert not any(allowed(operation, commit_key("mine", 1), crc32="AAAAAA==") for operation in Operation if operation is not Operation.PUT)
    ask = Ask(Operation.PUT, commit_key("mine", 1), if_absent=True, crc32="AAAAAA==")
    assert Ask.parse(json.loads(json.dumps(ask.as_dict()))) == ask
    assert hash_in(chunk_key(SHA, chunks_prefix("mine"))) == SHA and hash_in(commit_key("mine", 1)) is None


def test_of_datasets_the_shards_of_the_version_are_read_that_the_spec_names() -> None:
    shard, other = "cd" * 32, "ef" * 32
    lease = Lease("mine", 4, dataset=DatasetLease("lm", SHA, frozenset({shard})))
    reads = (Operation.GET, Operation.HEAD)
    mine = {manifest_key("lm", SHA), shard_key("lm", shard), index_key("lm", shard)}
    others = {manifest_key("lm", other), shard_key("lm", other), index_key("lm", other), shard_key("lm", SHA), manifest_key("lm", shard)}
    others |= {f(project, sha) for f in (manifest_key, shard_key, index_key) for sha in (SHA, shard) for project in ("vision", "lm/", "LM")}
    others |= {
        datasets_prefix("lm"),
        profiles_key("lm", SHA),
        manifest_key("lm", SHA) + "/",
        shard_key("lm", shard).replace("/cd/", "/ef/"),
    }
    for operation in Operation:
        assert {key for key in mine | others if refusal(lease, Ask(operation, key)) is None} == (mine if operation in reads else set())
        assert not any(allowed(operation, key) for key in mine), "the spec names no version"
    unread = Lease("mine", 4, dataset=DatasetLease("lm", SHA))
    assert refusal(unread, Ask(Operation.GET, manifest_key("lm", SHA))) is None
    assert refusal(unread, Ask(Operation.GET, shard_key("lm", shard))) is not None


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_the_datasets_of_two_projects_have_no_prefix_in_common(one: str, other: str) -> None:
    folders = [datasets_prefix(project) for project in (one, other, "sha256-" + one, datasets_prefix(one)[9:-1])]
    assert all(folder.count("/") == 2 and ".." not in folder.split("/") for folder in folders)
    assert (folders[0] == folders[1]) is (one == other) and folders[2] != folders[0]
    assert folders[3] == folders[0] or folders[0].startswith("datasets/sha256-"), "a name that looks like a hash is not taken as one"


@given(st.text(max_size=60), st.sampled_from(list(Operation)))
def test_nothing_outside_of_the_two_jobs_is_ever_allowed(text: str, operation: Operation) -> None:
    for key in (text, f"jobs/{text}", f"jobs/mine/../{text}", f"jobs/mine{text}/commits/0000000000"):
        if allowed(operation, key):
            assert key.startswith(("jobs/mine/", "jobs/old/"))


@given(
    st.dictionaries(
        st.sampled_from(["operation", "key", "span", "part", "x"]), st.one_of(st.text(), st.integers(), st.booleans(), st.none())
    )
)
def test_what_is_no_request_is_a_value_error(told: dict[str, object]) -> None:
    try:
        Ask.parse(told)
    except ValueError:
        pass


@given(st.builds(Ask, st.sampled_from(list(Operation)), st.text(), if_absent=st.booleans(), part=st.integers(0, 9)))
def test_a_request_comes_back_as_it_was_sent(ask: Ask) -> None:
    assert Ask.parse(ask.as_dict()) == ask


def test_the_policy_names_the_job_and_nothing_else() -> None:
    for statement in policy_of(Lease("mine", 4), "b")["Statement"]:
        for resource in statement["Resource"]:
            assert resource == "arn:aws:s3:::b" or resource.startswith("arn:aws:s3:::b/jobs/mine/")
        for prefix in statement.get("Condition", {}).get("StringLike", {}).get("s3:prefix", []):
            assert prefix.startswith("jobs/mine/")


OUTPUT = "jobs/mine/outputs/out"
WRITER = Lease("mine", 4, outputs=frozenset({"out"}))


def may_write(operation: Operation, key: str, **more: object) -> bool:
    return refusal(WRITER, Ask(operation, key, **more)) is None  # type: ignore[arg-type]


def test_of_the_outputs_that_its_spec_names_an_attempt_writes_shards_and_records() -> None:
    shard, piece, rank = f"{OUTPUT}/shards/{SHA}.tar", f"{OUTPUT}/pieces/part-1.json", f"{OUTPUT}/ranks/0000000004/000001.json"
    assert may_write(Operation.PUT, shard) and may_write(Operation.PUT, f"{OUTPUT}/shards/{SHA}.idx") and may_write(Operation.PUT, rank)
    assert may_write(Operation.PUT, piece, if_absent=True) and not may_write(Operation.PUT, piece)
    assert may_write(Operation.CREATE_UPLOAD, shard) and may_write(Operation.PUT_PART, shard, upload_id="a", part=1)
    assert may_write(Operation.LIST, f"{OUTPUT}/pieces/") and may_write(Operation.GET, piece) and may_write(Operation.HEAD, shard)
    assert not may_write(Operation.PUT, rank.replace("4/", "3/")) and not may_write(Operation.LIST, OUTPUT)
    assert not any(may_write(Operation.DELETE, key) for key in (shard, piece, rank))
    work, record = f"{OUTPUT}/work/unit-1.1.rows", f"{OUTPUT}/work/unit-1.1.json"
    assert may_write(Operation.PUT, f"{OUTPUT}/profiles/{SHA}.json") and not may_write(Operation.PUT, f"{OUTPUT}/profiles/p.json")
    assert may_write(Operation.PUT, work) and may_write(Operation.CREATE_UPLOAD, work) and may_write(Operation.GET, work)
    assert may_write(Operation.PUT, record, if_absent=True) and not may_write(Operation.PUT, record)
    for turn in (f"{record}.2", f"{OUTPUT}/pieces/a.json.9"):
        assert may_write(Operation.PUT, turn, if_absent=True) and may_write(Operation.GET, turn) and not may_write(Operation.PUT, turn)
    assert not any(may_write(Operation.PUT, f"{record}{ending}", if_absent=True) for ending in (".1", ".10", ".2.2", ".r2", ".2\n"))
    assert may_write(Operation.LIST, f"{OUTPUT}/work/") and not may_write(Operation.DELETE, work)
    for written in (f"{OUTPUT}/shards/*", f"{OUTPUT}/pieces/*", f"{OUTPUT}/work/*", f"{OUTPUT}/ranks/0000000004/*"):
        assert f"arn:aws:s3:::b/{written}" in policy_of(WRITER, "b")["Statement"][1]["Resource"]


@pytest.mark.parametrize(
    "key",
    [
        f"jobs/mine/outputs/other/shards/{SHA}.tar",
        f"jobs/old/outputs/out/shards/{SHA}.tar",
        "jobs/mine/ended/0000000004/n1",
        f"{OUTPUT}/shards/../{SHA}.tar",
        f"{OUTPUT}/pieces/.json",
        shard_key("default", SHA),
        manifest_key("default", SHA),
    ],
)
def test_beside_them_it_writes_no_output(key: str) -> None:
    assert not any(may_write(operation, key, if_absent=operation is Operation.PUT) for operation in WRITES)
    assert not any(allowed(operation, key) for operation in WRITES)


def test_of_the_projects_artifacts_an_attempt_writes_contents_under_their_hash_and_its_own_names() -> None:
    lease = Lease("mine", 4, resumes="old", project="p")

    def may(operation: Operation, key: str, **more: object) -> bool:
        return refusal(lease, Ask(operation, key, **more)) is None  # type: ignore[arg-type]

    hashed = (artifact_keys.object_key("p", SHA), artifact_keys.manifest_key("p", SHA))
    for key in hashed:
        assert may(Operation.PUT, key) and may(Operation.GET, key, span=(0, 9)) and may(Operation.HEAD, key)
        assert hash_in(key) == SHA and not may(Operation.DELETE, key) and not may(Operation.CREATE_UPLOAD, key)
    mine = artifact_keys.name_key("p", "tok", SHA, "job.mine")
    assert may(Operation.PUT, mine) and may(Operation.LIST, artifact_keys.names_prefix("p", "tok")) and not may(Operation.DELETE, mine)
    note = artifact_keys.storing_key("p", f"mine.{4:010d}.{'0' * 32}")
    assert may(Operation.PUT, note) and may(Operation.DELETE, note)
    others = [
        *(artifact_keys.name_key("p", "tok", SHA, by) for by in ("user", "job.old", "job.min", "job.mine2", "dataset.x")),
        artifact_keys.reference_key("p", SHA, f"dataset.{SHA}"),
        artifact_keys.run_file_key("p", "mine", "x", SHA),
        artifact_keys.deleted_run_key("p", "mine"),
        artifact_keys.storing_key("p", f"mine.{3:010d}.{'0' * 32}"),
        artifact_keys.storing_key("p", f"old.{4:010d}.{'0' * 32}"),
        "project-artifacts/p/objects/ab/../../x",
        f"project-artifacts/p/objects/cd/{SHA}",
        f"project-artifacts/p/objects/ab/{SHA}/x",
    ]
    assert not any(may(operation, key) for operation in WRITES for key in others)
    for project in ("q", "p2", "P", "", "p/objects", "sha256-x"):
        keys = [key(project, SHA) for key in (artifact_keys.object_key, artifact_keys.manifest_key)]
        keys += [artifact_keys.name_key(project, "tok", SHA, "job.mine"), artifact_keys.names_prefix(project, "tok")]
        assert not any(may(operation, key) for operation in Operation for key in keys)
    assert not any(refusal(Lease("mine", 4), Ask(operation, hashed[0])) is None for operation in Operation)


def test_artifacts_that_the_dataset_names_are_read_also_of_another_project() -> None:
    keys = frozenset({artifact_keys.object_key("theirs", SHA), artifact_keys.manifest_key("theirs", SHA)})
    lease = Lease("mine", 4, project="p", dataset=DatasetLease("theirs", SHA, artifacts=keys))
    for key in keys:
        assert refusal(lease, Ask(Operation.GET, key)) is None and refusal(lease, Ask(Operation.PUT, key)) is not None
        assert is_artifact_of_another(lease, key)
    assert refusal(lease, Ask(Operation.GET, artifact_keys.object_key("theirs", "cd" * 32))) is not None


def test_of_its_projects_models_an_attempt_reads_contents_and_pins_and_writes_nothing() -> None:
    lease = Lease("mine", 4, project="p", resumes="old")
    keys = (content_key("p", SHA), pin_key("p", "old", 3, SHA))
    for key in keys:
        assert refusal(lease, Ask(Operation.GET, key)) is None
        assert all(refusal(lease, Ask(each, key)) for each in (Operation.PUT, Operation.DELETE, Operation.LIST))
        assert refusal(Lease("mine", 4), Ask(Operation.GET, key)), "without a project it reads none"
    others = (content_key("theirs", SHA), pin_key("theirs", "old", 3, SHA), f"{models_prefix('p')}chains/m/0000000001", f"{keys[0]}/x")
    assert all(refusal(lease, Ask(Operation.GET, key)) for key in others)
