"""Specs and heartbeats to rows: what two jobs are compared by, and what their ranks waited for."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.projections.test_projection_rows import SPEC, rows_of
from trainhouse.events.model.decisions import JobQueued
from trainhouse.events.model.job import JobAdmitted
from trainhouse.events.model.node import AttemptHeartbeat, NodeHeartbeat, RankHeartbeat, RankState
from trainhouse.events.wire import topics
from trainhouse.projections.rows import beats, specs

OF_JOB: dict[str, Any] = {"job_id": "j", "spec": SPEC, "spec_sha256": "0" * 64, "submission_id": "s", "submitted_at_ms": 5}


def test_a_spec_is_flat_pairs_and_the_journals_copy_stays() -> None:
    [(table, admitted)] = rows_of(specs.rows, JobAdmitted(**OF_JOB))
    [(_, queued)] = rows_of(specs.rows, JobQueued(**OF_JOB, number=1), topic=topics.DECISIONS)
    assert table == "job_specs_rows" and queued["version"] > admitted["version"]
    assert {k: v for k, v in queued.items() if k != "version"} == {k: v for k, v in admitted.items() if k != "version"}
    assert admitted["config"]["gang.ranks"] == "3" and admitted["config"]["runtime.command"] == '["python", "train.py"]'
    assert admitted["config"]["user"] == "ada" and json.loads(admitted["json"])["gang"]["ranks"] == 3


TREE = st.recursive(
    st.integers() | st.text(max_size=5) | st.booleans(), lambda inner: st.dictionaries(st.text("ab", min_size=1), inner, max_size=3)
)


@given(st.dictionaries(st.text("ab", min_size=1), TREE, max_size=3))
def test_flat_pairs_have_one_pair_a_leaf(tree: dict[str, Any]) -> None:
    def leaves(value: Any) -> int:
        return sum(map(leaves, value.values())) if isinstance(value, dict) and value else 1

    pairs = list(specs.flatten(tree))
    assert len(pairs) == (leaves(tree) if tree else 0)


def test_a_heartbeat_sums_the_waits_of_a_nodes_ranks_exited_ones_too() -> None:
    def rank(number: int, **more: Any) -> RankHeartbeat:
        return RankHeartbeat(rank=number, device_id=f"d{number}", pid=1, **({"state": RankState.RUNNING} | more))

    ranks = (rank(0, step=4, step_at_ms=70, data_wait_s=1.5), rank(1, state=RankState.EXITED, step=5, step_at_ms=90, save_stall_s=2.0))
    attempt = AttemptHeartbeat(job_id="j", attempt=0, epoch=1, ranks=ranks)
    about = {"node_id": "n1", "boot_id": "b", "incarnation": "i", "pool": "p", "sequence": 1, "at_ms": 100, "interval_s": 1.0}
    [(table, row)] = rows_of(beats.rows, NodeHeartbeat.model_validate(about | {"attempts": (attempt,)}), topic=topics.HEARTBEATS)
    assert table == "attempt_beats_rows"
    assert (row["ranks"], row["step"], row["step_at"], row["data_wait_s"], row["save_stall_s"], row["at"]) == (2, 5, 90, 1.5, 2.0, 100)
