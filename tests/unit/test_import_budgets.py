"""What each process imports before it begins its work: a bound on its modules, and the large libraries that it may load at all.

A role's imports are those of its function in `cli/stack/run.py`, read from there, so that a new one counts at once.
"""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field

import pytest

from trainhouse.cli.stack import run
from trainhouse.client.quick.quick_gateway import AROUND

# What takes a tenth of a second of CPU or ten megabytes.
LARGE = frozenset(
    {
        *("torch", "numpy", "pandas", "pyarrow", "scipy", "statsmodels", "sklearn", "matplotlib", "mlflow"),
        *("faust", "aiokafka", "aiohttp", "fastapi", "uvicorn", "httpx", "rich", "opentelemetry"),
        *("chdb", "clickhouse_connect", "boto3", "cryptography", "confluent_kafka", "obstore", "pydantic"),
    }
)
EVENTS = frozenset({"confluent_kafka", "pydantic"})
STREAM = EVENTS | {"faust", "aiokafka", "aiohttp", "cryptography"}
READ = "\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
TIMEOUT_S = 480


@dataclass(frozen=True)
class Budget:
    """Of one process. `most`: what it had when this was written, and a tenth more."""

    most: int
    large: frozenset[str] = field(default=frozenset())


ROLES = {
    "intake": Budget(1060, STREAM),
    "scheduler": Budget(1160, STREAM),
    "detector": Budget(1020, STREAM),
    "tuner": Budget(1020, STREAM),
    "projector": Budget(1090, EVENTS | {"chdb", "clickhouse_connect", "pyarrow", "numpy", "aiohttp", "cryptography"}),
    "alerts": Budget(645, EVENTS),
    "gateway": Budget(1240, EVENTS | {"fastapi", "uvicorn", "httpx", "clickhouse_connect", "opentelemetry", "cryptography", "rich"}),
    "exporter": Budget(1290, EVENTS | {"opentelemetry", "cryptography", "clickhouse_connect", "pyarrow", "numpy"}),
    "agent": Budget(990, EVENTS | {"boto3", "cryptography"}),
}
MODULES = {
    "trainhouse.workers.launcher.warm": Budget(190),
    "trainhouse.projections.endpoint.guest": Budget(150),
    "trainhouse.deploy.local.supervision.supervisor": Budget(240),
    "trainhouse.deploy.local.supervision.tether": Budget(100),
    "trainhouse.cli.main": Budget(165),
    "trainhouse.cli.jobs.job_status, trainhouse.client.quick.quick_sql, trainhouse.client.rows, trainhouse.cli.shared.filters": Budget(235),
    "trainhouse.checkpointing.uploading.upload_process": Budget(680, frozenset({"boto3", "pydantic"})),
    "trainhouse.checkpointing.peer_memory.holder_server": Budget(130),
    "trainhouse.workers.data.order": Budget(221, frozenset({"numpy"})),
    "trainhouse.workers.evaluation.__main__": Budget(95),
    "trainhouse.workers.evaluation.result": Budget(312, frozenset({"pydantic"})),
    "trainhouse.deploy.local.stack": Budget(750, EVENTS | {"cryptography", "rich"}),
}


# What each question imports until its answer: (arguments, its modules). Both ways lead to a closed port, so that all is imported that asks.
ASKING = ("status", "status j-1", "events j-1", "logs j-1", "why j-1", "checkpoints j-1", "nodes", "nodes n-1", "alerts", "sql SELECT")
ASKED = Budget(300)
# Others ask the tables or the gateway, with modules of their own: (arguments, what of both ways is tried, budget).
REPORTS = ("report list", "report show r", "report history r")
ASKING_MORE = {
    "tag j-1": Budget(300),
    "audit list": Budget(300),
    "open --print": Budget(330),
    "report health": Budget(330),
    **dict.fromkeys(REPORTS, Budget(300)),
    "slo": Budget(330),
}
# These read a topic whole, from brokers at a closed port: without models.
TOPICS_READ = (
    *("project list", "project show p", "policy show p", "token show", "topics", "upgrade status"),
    *("data list", "data grants", "data quarantine list", "models list", "models show m", "models why m 1"),
)
TOPIC_READING = dict.fromkeys(TOPICS_READ, Budget(300, frozenset({"confluent_kafka"})))
NOTHING = "http://127.0.0.1:1"
TABLES_ALONE = {"TRAINHOUSE_KAFKA_BOOTSTRAP": "127.0.0.1:1", "TRAINHOUSE_CLICKHOUSE_URL": NOTHING}
GATEWAY_ALONE = {"TRAINHOUSE_GATEWAY_URL": NOTHING, "TRAINHOUSE_GATEWAY_TOKEN": "t"}
# Where the first question fails, what the quick way has imported is known.
STOPS = """
import os, sys, json
sys.argv = ["trainhouse", *{words!r}]
os.environ.update({environment!r})
from trainhouse.client.quick import quick_reads
class Asked(BaseException): pass
def asked(*_, **__): raise Asked
import http.client
http.client.HTTPConnection.connect = asked
try:
    from trainhouse.cli.main import main
    main()
except Asked:
    pass
"""


# An empty topic: its models are known, and all that prints it.
STOPS_AT_TOPIC = """
import os, sys
sys.argv = ["trainhouse", *{words!r}]
os.environ.update({environment!r})
from trainhouse.client.quick import quick_topics
import confluent_kafka
quick_topics.QuickTopics.messages = quick_topics.TopicReader.messages = lambda self, topic: iter(())
quick_topics.TopicReader.newest_records = lambda self, topic: {{0: None}}
quick_topics.QuickTopics.counts = lambda self: {{"trainhouse.jobs": 1}}
from trainhouse.cli.main import main
import io; sys.stdout = io.StringIO()
try:
    main()
except SystemExit:
    pass
sys.stdout = sys.__stdout__

"""


# A store with one version of an artifact and of a dataset, whose publication is all of its topic.
STORE = {
    "TRAINHOUSE_S3_ACCESS_KEY": "id",
    "TRAINHOUSE_S3_SECRET_KEY": "key",  # pragma: allowlist secret
    "TRAINHOUSE_S3_DEADLINE_S": "1",
}
STOPS_AT_STORE = """
import os, sys
sys.argv = ["trainhouse", *{words!r}]
os.environ.update({environment!r})
from pathlib import Path
import orjson
from trainhouse.client.quick import plain_events, quick_store, quick_topics
import obstore.store
SHA = "0" * 64
FILE = {{"path": "a", "bytes": 1, "sha256": SHA}}
SHARD = {{"sha256": SHA, "index_sha256": SHA, "bytes": 1, "samples": 1}}
MANIFEST = dict(format=1, fields=[], schema_hash=SHA, split_config_hash=SHA, split_rule="", row_count=1, bytes=1, sources=[], licence="",
    purposes=[], splits={{"train": {{"shards": [SHARD], "samples": 1, "bytes": 1, "statistics": {{}}}}}})
ARTIFACT = {{"format": 1, "kind": "file", "files": [FILE]}}
quick_store.QuickStore.below = lambda self, prefix: [quick_store.StoredObject(prefix + "n/" + SHA + "/user", 1.0)]
quick_store.QuickStore.content = lambda self, key, sha256, most: orjson.dumps(ARTIFACT if key.startswith("project-") else MANIFEST)
class Record:
    def key(self): return b"speech"
    def value(self):
        found = orjson.loads((plain_events.SCHEMAS.parent / "samples" / "trainhouse.dataset.version-published.v1.json").read_bytes())
        found["data"] |= {{"semver": "1.0.0"}}
        found["data"]["version"] |= {{"dataset": "speech"}}
        return orjson.dumps(found)
def messages(self, topic):
    import confluent_kafka
    return iter([Record()])
quick_topics.QuickTopics.messages = messages
from trainhouse.cli.main import main
import io; sys.stdout = printed = io.StringIO()
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
sys.stdout = sys.__stdout__
assert SHA[:12] in printed.getvalue(), printed.getvalue()
"""


def imported(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", code + READ], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def imports_of(role: str) -> str:
    """The role's beginning: everything that its function calls before its first import, and all of its imports."""
    function = ast.parse(textwrap.dedent(inspect.getsource(run.ROLES[role]))).body[0]
    assert isinstance(function, ast.FunctionDef)
    imports = [ast.unparse(node) for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)]
    setting_up = [ast.unparse(node) for node in function.body if ast.unparse(node).startswith("_leave_out")]
    return "\n".join(
        [
            "from trainhouse.cli.main import build; build('run')",
            "from trainhouse.cli.stack.run import *; from trainhouse.cli.stack import run",
            f"run.configure('info', {role!r})",
            *(f"run.{each}" for each in setting_up),
            *imports,
        ]
    )


def hold(budget: Budget, found: set[str]) -> None:
    assert found & LARGE <= budget.large, "a large library that this process has no use for at its start"
    assert len(found) <= budget.most, "more modules than before: import what is used seldom where it is used"


@pytest.mark.parametrize("role", run.ROLES)
def test_a_role_imports_what_it_uses(role: str) -> None:
    hold(ROLES[role], imported(imports_of(role)))


@pytest.mark.parametrize("module", MODULES)
def test_a_process_beside_the_roles_imports_what_it_uses(module: str) -> None:
    hold(MODULES[module], imported(f"import {module}"))


@pytest.mark.parametrize("environment", [TABLES_ALONE, GATEWAY_ALONE], ids=["tables", "gateway"])
@pytest.mark.parametrize("words", ASKING)
def test_a_question_imports_no_models_no_brokers_and_no_http_library(
    words: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_settings(monkeypatch)
    found = imported(STOPS.format(words=words.split(), environment=environment))
    assert "http.client" in found and "trainhouse.client.quick.quick_reads" in found
    # Of rich a table of character widths alone.
    assert not {"rich.console", "rich.text", "typer._adapters"} & found
    hold(ASKED, found - {"rich", "rich.cells", "rich._unicode_data"})


def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*AROUND["http"], "TRAINHOUSE_CONFIG", "TRAINHOUSE_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize("environment", [TABLES_ALONE | GATEWAY_ALONE, GATEWAY_ALONE], ids=["tables", "gateway"])
@pytest.mark.parametrize("words", ASKING_MORE)
def test_other_questions_import_what_they_show(words: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    without_settings(monkeypatch)
    found = imported(STOPS.format(words=words.split(), environment=environment))
    assert "http.client" in found and "trainhouse.client.client" not in found
    hold(ASKING_MORE[words], found - {"rich", "rich.cells", "rich._unicode_data"})


def test_pools_are_shown_over_the_gateway_without_models(monkeypatch: pytest.MonkeyPatch) -> None:
    without_settings(monkeypatch)
    found = imported(STOPS.format(words=["pool", "show"], environment=GATEWAY_ALONE))
    assert "http.client" in found and "trainhouse.client.client" not in found
    hold(ASKED, found - {"rich", "rich.cells", "rich._unicode_data"})


@pytest.mark.parametrize("words", TOPIC_READING)
def test_a_question_to_a_topic_imports_no_models(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_settings(monkeypatch)
    found = imported(STOPS_AT_TOPIC.format(words=words.split(), environment=TABLES_ALONE))
    assert "confluent_kafka" in found and "trainhouse.client.client" not in found
    hold(TOPIC_READING[words], found - {"rich", "rich.cells", "rich._unicode_data"})


def test_artifacts_are_listed_without_models_and_without_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    without_settings(monkeypatch)
    found = imported(STOPS_AT_STORE.format(words=["artifact", "list"], environment=TABLES_ALONE | STORE))
    hold(Budget(300, frozenset({"obstore"})), found - {"rich", "rich.cells", "rich._unicode_data"})


def test_a_dataset_is_shown_without_models_and_without_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    without_settings(monkeypatch)
    found = imported(STOPS_AT_STORE.format(words=["data", "show", "speech@1.0.0"], environment=TABLES_ALONE | STORE))
    hold(Budget(320, frozenset({"confluent_kafka", "obstore"})), found - {"rich", "rich.cells", "rich._unicode_data"})


# All checks of a deployment whose servers answer, without that of torch, which another process imports.
DOCTOR = """
from trainhouse.cli.doctor import machine_checks
from trainhouse.client.quick import quick_store
from trainhouse.client.sql import SqlEndpoint, Table
machine_checks.torch_report = lambda: ({{"version": "2", "cuda": None, "devices": 0}}, "")
quick_store.QuickStore.below = lambda self, prefix: []
SqlEndpoint.table = lambda self, query, parameters=None: Table(("count()",), [(1,)])
import http.client
class Answer:
    status = 200
    def read(self): return b""
    def getheader(self, name): return "Fri, 27 Nov 2026 07:00:00 GMT"
http.client.HTTPConnection.request = lambda *_, **__: None
http.client.HTTPConnection.getresponse = lambda self: Answer()
"""


def test_the_checks_of_a_deployment_import_no_models_and_no_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    without_settings(monkeypatch)
    ways = TABLES_ALONE | GATEWAY_ALONE | STORE
    found = imported(DOCTOR.format() + STOPS_AT_TOPIC.format(words=["doctor"], environment=ways))
    assert "trainhouse.client.quick.quick_store" in found and "trainhouse.client.client" not in found
    hold(Budget(330, frozenset({"confluent_kafka"})), found - {"rich", "rich.cells", "rich._unicode_data"})


def test_the_state_of_a_stack_imports_no_models_and_no_brokers() -> None:
    hold(Budget(400), imported("from trainhouse.cli.main import build; build('ps')\nimport trainhouse.deploy.local.stack_state"))


def test_arrays_do_without_pandas_in_the_projector() -> None:
    code = imports_of("projector") + "\nimport numpy, pyarrow\nassert pyarrow.array(numpy.zeros(3)).to_pylist() == [0.0, 0.0, 0.0]"
    assert "pandas" not in imported(code)


def test_torch_is_what_the_warm_process_is_for() -> None:
    assert "torch" in imported("from trainhouse.workers.launcher.preload import preload; preload()")
