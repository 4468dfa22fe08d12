"""Faults of the core, one a row: where it would be, the text as it is, the text with the fault, and the tests that must fail of it.

Holds: each text stands in its module once; its module is named as it is imported, so that a moved file needs its name changed here alone.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """`tests`: names of files under `tests/unit` or, with their folder, elsewhere in `tests`."""

    module: str
    old: str
    new: str
    tests: tuple[str, ...]


CORE, EVENTS, SAVED, TABLES = "trainhouse.scheduler.core.", "trainhouse.events.", "trainhouse.checkpointing.", "trainhouse.projections."
BUDGET, BUCKET, QUOTAS = ("test_core_budget.py",), ("test_projects_bucket.py",), ("test_queue_quotas.py",)
JOURNAL = ("test_journal_rules.py", "simulation/test_journal_recovery.py")
SCORES, DECAY, SILENCE = ("test_queue_score.py",), ("test_queue_decay.py", "test_queue_usage.py"), ("test_detector_silence.py",)
BLAME = ("test_blame_corpus.py", "test_blame_parts.py")
CHAIN = ("test_checkpointing_save_restore.py", "test_checkpointing_resize.py", "test_checkpointing_parts.py")
RETENTION, LEASE = ("test_checkpointing_retention.py",), ("test_lease_rule.py",)
REFERENCES = ("test_checkpointing_references.py",)
ENDS = ("test_core_lost.py", "test_core_making_way.py", "test_core_hangs.py", "test_core_verdicts.py")
TOMBSTONES, CODEC, SIGNING = ("test_tombstones.py",), ("test_events_codec.py", "test_events_depth.py"), ("test_events_signing.py",)
GROWTH, ROWS = ("test_elastic_growth.py",), ("test_projection_rows.py", "test_projection_telemetry.py")

MUTATIONS = (
    # The journal's rule.
    Mutation(CORE + "protocol.journal", 'if head["seq"] != folded.seq + 1:', 'if head["seq"] <= folded.seq:', JOURNAL),
    Mutation(CORE + "protocol.journal", "elif read.seq == folded.seq + 1:", "elif read.seq >= folded.seq:", JOURNAL),
    Mutation(CORE + "protocol.journal", "if record.previous_hash != folded.last_hash:", "if False:", JOURNAL),
    Mutation(CORE + "protocol.journal", "version > machine.fold_version:", "version > machine.fold_version + 1:", JOURNAL),
    Mutation(CORE + "protocol.journal", "cursor=max(folded.cursor, record.cursor),", "cursor=record.cursor,", JOURNAL),
    Mutation(
        CORE + "protocol.journal",
        "last_hash=record_hash(value)) if seq",
        "last_hash=folded.last_hash) if seq",
        ("test_journal_repairs.py",),
    ),
    Mutation(CORE + "protocol.journal", "i.is_event and i.offset not in refused", "i.is_event", ("test_journal_gate.py", *JOURNAL)),
    # What an end costs.
    Mutation(CORE + "attempts.restart_budget", "if kind is StopKind.FATAL:", "if False:", BUDGET),
    Mutation(CORE + "attempts.restart_budget", "and blamed.mine and kind in", "and kind in", BUDGET),
    Mutation(CORE + "attempts.restart_budget", "left = job.tally.failures < job.limits.restarts", "left = True", BUDGET),
    Mutation(CORE + "attempts.restart_budget", "    if job.tally.failures < allowed:", "    if job.tally.failures <= allowed:", BUDGET),
    Mutation(CORE + "attempts.restart_budget", "if job.tally.losses < MAX_LOSSES:", "if job.tally.losses <= MAX_LOSSES:", BUDGET),
    Mutation(CORE + "attempts.restart_budget", "return len(same) >= rules", "return len(same) > rules", BUDGET),
    Mutation(CORE + "attempts.restart_budget", ">= LONG_ENOUGH_MS else", "> LONG_ENOUGH_MS else", BUDGET),
    Mutation(CORE + "attempts.restart_budget", "first_ms << min(streak - 1,", "first_ms << min(streak,", BUDGET),
    # Rates.
    Mutation(CORE + "intake.bucket", "if level >= rate.unit else None", "if level > rate.unit else None", BUCKET),
    Mutation(CORE + "intake.bucket", "return min(full, bucket.level", "return max(full, bucket.level", BUCKET),
    Mutation(CORE + "intake.bucket", "max(0, now_ms - bucket.at_ms)", "(now_ms - bucket.at_ms)", BUCKET),
    Mutation(CORE + "intake.bucket", "bucket.at_ms - now_ms > STEP_MS", "bucket.at_ms - now_ms > 10 * STEP_MS", BUCKET),
    # Who waits, who may hold what.
    Mutation(CORE + "queue.quotas", "if limit is not None and held + milli > limit:", "if limit is not None and held > limit:", QUOTAS),
    Mutation(CORE + "queue.quotas", "if limit is not None and milli > limit:", "if limit is not None and milli >= limit:", QUOTAS),
    Mutation(CORE + "queue.quotas", "if entitled and not borrowers:", "if entitled:", QUOTAS),
    Mutation(CORE + "queue.quotas", "if own > sum(m for _, m in below) else below", "if own else below", QUOTAS),
    Mutation(CORE + "queue.quotas", "own = 0 if branch.lends else", "own = 0 if not branch.lends else", QUOTAS),
    Mutation(
        CORE + "queue.quotas",
        "twin._held, twin._own, twin._pending = self._held.copy(),",
        "twin._held, twin._own, twin._pending = self._held,",
        QUOTAS,
    ),
    Mutation(CORE + "queue.score", "self.priority_term + self.wait_bonus - self", "self.priority_term - self.wait_bonus - self", SCORES),
    Mutation(CORE + "queue.score", "now_ms - job.submitted_ms - job.ran_ms", "now_ms - job.submitted_ms", SCORES),
    Mutation(CORE + "queue.score", "return bonus if bonus < self.most else self.most", "return bonus", SCORES),
    Mutation(CORE + "queue.score", "min(share / fair - 1.0, 1e6)", "min(share / fair, 1e6)", SCORES),
    Mutation(CORE + "queue.decay", "if held and last - first > 1:", "if held and last - first > 2:", DECAY),
    Mutation(CORE + "queue.decay", "area = track.area + held * ((first + 1)", "area = held * ((first + 1)", DECAY),
    # The detector, and whose fault it was.
    Mutation(CORE + "detector.silence", "before is Liveness.LOST or silent_ms", "silent_ms", SILENCE),
    Mutation(CORE + "detector.silence", "limits.lost_beats * beat_ms:", "limits.suspected_beats * beat_ms:", SILENCE),
    Mutation(CORE + "detector.silence", "1000 * interval_s) >= UNUSUAL_PHI", "1000 * interval_s) >= 0", SILENCE),
    Mutation(CORE + "blame.rank_exit", "return Finding(end, Causality.FOLLOWS, rule", "return Finding(end, Causality.CAUSE, rule", BLAME),
    Mutation(CORE + "blame.rank_exit", "(raised.own and raised.kind in _MINE)", "(raised.kind in _MINE)", BLAME),
    Mutation(CORE + "blame.rank_exit", "standing = Causality.ASKED if cause.asked", "standing = Causality.BARE if cause.asked", BLAME),
    # How an attempt ends, and what grows.
    Mutation(CORE + "attempts.outcome", "elif all_clean(allotment) and may_succeed(job)", "elif may_succeed(job)", ENDS),
    Mutation(CORE + "attempts.outcome", "if job.awaits_answers:", "if False:", ("test_core_outputs.py",)),
    Mutation(CORE + "attempts.job_outputs", "elif not outputs.requests:", "elif outputs.requests:", ("test_core_outputs.py",)),
    Mutation(
        CORE + "attempts.outcome",
        "if times >= rule.rollbacks else",
        "if times > rule.rollbacks else",
        ENDS,
    ),
    Mutation(
        CORE + "cycle.elastic", "shape.sizes(running.ranks + 1, shape.ranks):", "shape.sizes(running.ranks + 1, shape.ranks - 1):", GROWTH
    ),
    Mutation(CORE + "cycle.elastic", "or job.job_id in book.claims:", "or False:", (*GROWTH, "test_cluster_laws.py")),
    Mutation(CORE + "cycle.elastic", "now_ms - running.started_ms >= milliseconds", "now_ms - running.started_ms > milliseconds", GROWTH),
    # The chain of checkpoints.
    Mutation(
        SAVED + "chain.commits",
        "for commit in range(head(objects, job_id), -1, -1):",
        "for commit in range(head(objects, job_id), 0, -1):",
        CHAIN,
    ),
    Mutation(SAVED + "chain.commits", "and commit > at_most and not", "and commit >= at_most and not", CHAIN),
    Mutation(SAVED + "chain.commits", "else min(at_most, entry.restore_at_most)", "else max(at_most, entry.restore_at_most)", CHAIN),
    Mutation(SAVED + "chain.commits", "            self._refuse_newer_epoch(known)\n", "", CHAIN),
    Mutation(SAVED + "chain.commits", "and entry.writer == self._writer.writer:", ":", CHAIN),
    Mutation(
        SAVED + "chain.chunks",
        'if found != chunk.sha256:\n            raise DamagedError(f"chunk {chunk.sha256[:12]}… has {len(body)}',
        'if len(body) != chunk.size_bytes:\n            raise DamagedError(f"chunk {chunk.sha256[:12]}… has {len(body)}',
        CHAIN,
    ),
    Mutation(SAVED + "chain.chunks", "found.age_s < self._fresh_s", "found.age_s < 4 * self._fresh_s", (*CHAIN, *RETENTION)),
    Mutation(SAVED + "chain.manifest", "    if found != checksum:", "    if False:", ("test_checkpointing_manifest.py",)),
    Mutation(SAVED + "chain.retention", "healthy[-max(1, policy.keep_last) :]", "healthy[-policy.keep_last :]", RETENTION),
    Mutation(SAVED + "chain.retention", "and n < newest)", ")", RETENTION),
    Mutation(
        SAVED + "chain.retention",
        "if found.modified_s < older_than_s and found.key not in named:",
        "if found.modified_s < older_than_s:",
        RETENTION,
    ),
    Mutation(
        SAVED + "chain.retention",
        "back = frozenset(manifests) if _is_rewound(objects, job_id, seen) else reader.read().kept(manifests)",
        "back = set()",
        REFERENCES,
    ),
    Mutation(SAVED + "chain.retention", "if held.of(entry.commit):", "if False:", REFERENCES),
    Mutation(SAVED + "chain.retention", "elif found is None or found.modified_s >= older_than_s or", "elif found is None or", REFERENCES),
    Mutation(SAVED + "chain.retention", " >= older_than_s or job_id in unclear:", " >= older_than_s:", RETENTION),
    Mutation(SAVED + "chain.retention", 'path[2:3] == ["chunks"] and path[1] not in unclear', 'path[2:3] == ["chunks"]', RETENTION),
    Mutation(SAVED + "chain.commits", "(found.job_id, found.commit) != (job_id, commit)", "found.commit != commit", RETENTION),
    Mutation(SAVED + "chain.commits", "(entry, entry.manifest if isinstance(entry, Pruned) else None)", "(entry,)", RETENTION),
    Mutation(SAVED + "chain.retention", "                    del self._live[commit]\n", "                    pass\n", REFERENCES),
    Mutation(SAVED + "chain.retention", "| set(due)) - sure)", ") - sure)", REFERENCES),
    Mutation(
        SAVED + "chain.retention",
        "(_kept_by_policy(self._live, policy, frozenset(self._damaged)) | set(due)) - sure",
        "set(due) - sure",
        REFERENCES,
    ),
    Mutation(SAVED + "chain.retention", "if not ended and commit in", "if commit in", REFERENCES),
    Mutation(SAVED + "chain.references", "if found.age_s > MIN_REMEMBERED_AGE_S:", "if True:", REFERENCES),
    Mutation(SAVED + "chain.references", "    if manifest is not None:\n", "    if False:\n", REFERENCES),
    Mutation(
        SAVED + "chain.references",
        "return (*self.by_commit.get(commit, ()), *self.unreadable)",
        "return self.by_commit.get(commit, ())",
        REFERENCES,
    ),
    Mutation(
        SAVED + "chain.retention",
        "if _is_rewound(objects, job_id, seen) else",
        "if False else",
        REFERENCES,
    ),
    Mutation(SAVED + "chain.restore_candidates", "            self._keep(manifest)\n", "            pass\n", REFERENCES),
    Mutation(SAVED + "chain.restore_candidates", "entry = entry.manifest or entry", "pass", REFERENCES),
    Mutation(SAVED + "lease.access_rule", ' and found["child"] == lease.job_id', "", LEASE),
    Mutation(SAVED + "lease.access_rule", "epoch_in(key) < lease.epoch", "epoch_in(key) <= lease.epoch", LEASE),
    Mutation(
        SAVED + "lease.access_rule",
        "(_own(lease, _SAVER, key=key) and epoch_in(key) == lease.epoch)",
        "_own(lease, _SAVER, key=key)",
        LEASE,
    ),
    Mutation(SAVED + "lease.access_rule", 'and found["output"] in lease.outputs', "", LEASE),
    Mutation(
        SAVED + "state.balance",
        "rank = ranks[0] if len(ranks) == 1 else",
        "rank = ranks[0] if ranks else",
        ("test_checkpointing_balance.py",),
    ),
    # Events.
    Mutation(EVENTS + "security.signing", 'return _CONTEXT + topic.encode() + b"\\0" + value', 'return _CONTEXT + b"\\0" + value', SIGNING),
    Mutation(EVENTS + "security.signing", "if len(found) != 1 or any(", "if not found or any(", SIGNING),
    Mutation(EVENTS + "wire.codec", "> MAX_DEPTH and is_deep(parsed):", "> MAX_DEPTH and False:", CODEC),
    Mutation(EVENTS + "tombstones.rule", "stored = record.offset < self.stored_to", "stored = True", TOMBSTONES),
    Mutation(EVENTS + "tombstones.rule", "        self.keys.pop(record.key, None)\n        old", "        old", TOMBSTONES),
    Mutation(EVENTS + "tombstones.rule", "return event.state.final or record.key", "return True or record.key", TOMBSTONES),
    # Tables.
    Mutation(TABLES + "ingest.builders.json_columns", 'if mark >= data["end"]:', 'if mark > data["start"]:', ROWS),
    Mutation(
        TABLES + "ingest.builders.json_columns",
        "return int(np.searchsorted(at, mark))",
        'return int(np.searchsorted(at, mark, side="right"))',
        ROWS,
    ),
    Mutation(TABLES + "rows.jobs", "or key != event.job_id)", ")", ROWS),
    Mutation(
        TABLES + "rows.jobs",
        "if envelope.order is None or not envelope.order.live:",
        "if True:",
        ("test_projection_rows.py", "test_projection_seconds.py", "test_live_progress.py"),
    ),
    Mutation(TABLES + "store.positions", "2 * batch.number + done) for", "batch.number) for", ("integration/test_projector_exactness.py",)),
    Mutation(
        TABLES + "store.positions",
        "if number == newest and not done:",
        "if number == newest:",
        ("integration/test_projector_exactness.py",),
    ),
)
