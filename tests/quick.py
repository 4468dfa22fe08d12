"""What `make test` runs of the tests on real servers: one for each of them, one journey through a whole stack, a look at the pages.

    python -m tests.quick NAME [option of pytest ...]

Holds: each test of the lists exists (`tests/unit/harness/test_quick.py`). Never: the only place of a
test; `make test-full` runs all of them too.
"""

from __future__ import annotations

import sys

import pytest

from tests.support.profiles import QUICK

# What the test starts -> the test.
SERVERS = {
    "Kafka": "tests/contract/test_local_servers.py::test_the_broker_keeps_what_it_acknowledged_when_killed",
    "Kafka with passwords and grants": (
        "tests/security/test_kafka_acl.py::test_a_principal_may_do_what_the_table_says_and_nothing_else[agent]"
    ),
    "the journal on Kafka": "tests/integration/test_journal_kafka.py::test_two_owners_compete_and_every_reader_agrees_on_the_winner",
    "the object store": (
        "tests/contract/test_local_servers.py::test_the_store_keeps_what_it_acknowledged_when_killed_and_moved_to_other_ports"
    ),
    "ClickHouse": "tests/integration/test_projection_tables.py::test_devices_are_shown_by_state_with_their_health",
    "ClickHouse over HTTP": "tests/contract/test_clickhouse_http.py::test_plain_requests_with_formats_parameters_and_compression",
    "the SQL of guests": "tests/security/test_sql_process.py::test_errors_limits_and_the_gate_are_those_of_the_endpoint",
    "the projector": "tests/integration/test_projector_process.py::test_only_committed_records_of_transactions_count",
    "the detector": "tests/integration/test_detector_process.py",
    "a Faust worker": "tests/integration/test_faust_cli.py::test_a_worker_does_its_work_and_shows_it",
    "the gateway": "tests/security/test_web_raw.py::test_an_own_name_is_answered",
    "the agent": "tests/integration/test_agent_life.py::test_a_gang_is_launched_told_and_ended",
    "the launcher": "tests/integration/test_launcher_start.py::TestBothWays::test_two_ranks_of_an_unmodified_script_train",
    "a confined rank": "tests/security/test_job_walls.py::test_no_attack_from_a_rank_or_a_command_beside_it_succeeds[warm]",
    "the process that uploads": (
        "tests/integration/test_upload_confined.py"
        "::test_a_save_is_uploaded_from_memory_that_no_folder_bounds_and_no_process_outlives_its_rank[True]"
    ),
    "checkpoints of a gang": "tests/integration/test_checkpoint_ddp.py::test_a_resumed_gang_ends_bit_for_bit_as_one_that_never_stopped",
}
JOURNEY = "tests/integration/test_journey.py"
PAGES = (
    "tests/browser/test_flows.py::test_a_token_signs_in_by_hand_and_by_a_code",
    "tests/browser/test_flows.py::test_the_overview_shows_every_device_the_queue_and_alerts",
    "tests/browser/test_flows.py::test_a_job_tells_its_whole_story",
)
LISTS = {"servers": tuple(SERVERS.values()), "journey": (JOURNEY,), "pages": PAGES}


def main(arguments: list[str]) -> int:
    """Runs one of the lists; the exit code is pytest's."""
    name, *more = arguments
    return int(pytest.main([f"--hypothesis-profile={QUICK}", *more, *LISTS[name]]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
