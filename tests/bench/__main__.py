"""Runs the benches that are named, or all: `python -m tests.bench [NAME …]`."""

import importlib
import sys
import traceback

from tests.bench import report

BENCHES = (
    "log_metric",
    "allocation",
    "first_step",
    "recovery",
    "freshness",
    "ingest",
    "secured_ingest",
    "signed_telemetry",
    "rebuild",
    "questions",
    "placements",
    "faust_streams",
    "decision_batch",
    "journal_gate",
    "journal_day",
    "cold_start",
    "idle_stack",
    "philly",
    "fragmentation",
    "fleet",
    "mttr",
    "blame",
    "detector",
    "takeover",
    "handover",
    "gateway_answers",
    "cli_answers",
    "sse",
    "pages",
    "pages_curves",
    "sql_walls",
    "checkpoint_stall",
    "upload_steps",
    "upload_full",
    "peer_memory",
    "lost_node",
    "restore",
    "models_fetch",
    "session_step",
    "deterministic",
    "loader",
    "loader_shards",
    "loader_store",
    "loader_scale",
    "preparing",
    "model_statistics",
    "study_suggest",
    "study_early_stopping",
)
LONG = ("policies", "directory_growth")
"""Many minutes: run when they are named."""


def main() -> int:
    names = sys.argv[1:] or list(BENCHES)
    failed = 0
    for name in names:
        if name not in (*BENCHES, *LONG):
            report.note(f"no bench {name!r}; there are {', '.join((*BENCHES, *LONG))}")
            return 2
        report.note(f"bench {name} …")
        try:
            importlib.import_module(f"tests.bench.{name}").run()
        except Exception as error:
            traceback.print_exc()
            report.line(name, failed=str(error))
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
