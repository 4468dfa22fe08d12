"""Commands that ask print the same by their quick ways and by the whole client."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.cli.doctor import deployment_checks
from trainhouse.cli.main import build
from trainhouse.client.quick import quick_reads

WAIT_S = 150.0
TRAINS = ("python", "-m", "trainhouse.workers.examples.gpt", "--width", "64", "--checkpoint-every", "5", "--steps", "5")
PROJECT = "name: quick-commands\nmembers: {ana: maintainer}\npurposes: {trials: to compare commands}\nlimits: {highest_priority: 20}\n"
CHATS = "".join(f'{{"text": "line {n}"}}\n' for n in range(4))
# By lists that stand still; `JOB` is one that ended.
QUESTIONS = (
    "status JOB",
    "status nothing-like-that",
    "status --json --tag quick=yes",
    "logs JOB",
    "why JOB",
    "events JOB",
    "checkpoints JOB",
    "checkpoint tags JOB",
    "tag JOB",
    "tag JOB --json",
    "tag nothing-like-that",
    "alerts rules",
    "project list",
    "project list --json",
    "project show quick-commands",
    "project show quick-commands --json",
    "project show nothing-like-that",
    "policy show default",
    "policy show default --json",
    "policy show nothing-like-that",
    "data list quick-chats",
    "data list quick-chats --json",
    "data grants quick-chats",
    "data quarantine list",
    "data show quick-chats@1.0.0",
    "data show quick-chats@1.0.0 --json",
    "data show quick-chats@9.9.9",
    "artifact list quick-words",
    "artifact list quick-words --json",
    "artifact list nothing-like-that",
    "models list --project quick-models",
    "models list --project quick-models --json",
    "models show quick-models/digits",
    "models show quick-models/digits --json",
    "models show nothing-like-that",
    "models why quick-models/digits 1",
    "models why quick-models/digits 1 --json",
    "models why quick-models/digits 7",
    "topics",
    "topics --json",
    "topics --wide",
    "upgrade status",
    "token show",
    "token show --json",
    "report list --project quick-commands",
    "report show quick-report",
    "report show nothing-like-that",
    "report history quick-report --json",
    "sql SELECT-1",
)

# None of these loads a model, where all is as it should be.
PLAIN = (
    *("project list", "policy show default", "data list", "data grants", "data show quick-chats@1.0.0", "artifact list quick-words"),
    *(
        "models list",
        "models show quick-models/digits",
        "models why quick-models/digits 1",
        "topics",
        "upgrade status",
        "token show",
        "slo",
    ),
)
LOADED = """
import sys
sys.argv = ["trainhouse", *sys.argv[1:]]
from trainhouse.cli.main import main
try:
    main()
finally:
    loaded = {"pydantic", "boto3", "rich.console", "trainhouse.client.client"} & set(sys.modules)
    assert not loaded, loaded
"""


def printed(words: str) -> tuple[int, str, str]:
    """The exit code, standard output and standard error of a command in this process; an expected error as its class and text."""
    arguments = ["sql", "SELECT 1"] if words == "sql SELECT-1" else words.split()
    done = CliRunner().invoke(build(arguments[0]), arguments)
    error = "" if done.exception is None or isinstance(done.exception, SystemExit) else f"{done.exception}"
    return done.exit_code, done.stdout, done.stderr + error


@pytest.fixture(scope="module")
def job(stack: LiveStack, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A job that ended and has a tag; a project, a dataset with a grant, a report and a token, all seen by the tables."""
    folder = tmp_path_factory.mktemp("quick")
    (folder / "p.yaml").write_text(PROJECT)
    (folder / "chats.jsonl").write_text(CHATS)
    (folder / "r.md").write_text("# quick\n")
    job = stack.ok("submit", "--wait", "--quiet", "--no-code", "--", "python", "-c", "print('said')").split()[0]
    stack.ok("tag", job, "quick=yes")
    stack.ok("project", "set", str(folder / "p.yaml"))
    stack.ok("data", "publish", "quick-chats", str(folder / "chats.jsonl"), "--version", "1.0.0")
    stack.ok("data", "grant", "quick-chats", "--project", "quick-commands", "--purpose", "trials")
    (folder / "words.txt").write_text("one two")
    stack.ok("artifact", "put", "quick-words", str(folder / "words.txt"))
    trained = stack.ok("submit", "--wait", "--quiet", "--no-code", "--project", "quick-models", "--", *TRAINS, timeout_s=240).split()[0]
    stack.ok("models", "register", "quick-models/digits", trained)
    stack.ok("token", "create", "quick-ana", "--role", "viewer", "--project", "default")
    if stack.run("report", "show", "quick-report").code != 0:
        stack.ok("report", "save", "quick-report", str(folder / "r.md"))
    until(lambda: "said" in stack.run("logs", job).out, "its line", WAIT_S)
    until(lambda: "quick" in stack.run("tag", job).out, "its tag", WAIT_S)
    until(lambda: "SUCCEEDED" in stack.run("events", job).out, "its end", WAIT_S)
    return job


@pytest.mark.parametrize("words", QUESTIONS)
def test_a_question_is_answered_alike_by_both_ways(words: str, job: str, stack: LiveStack, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TRAINHOUSE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRAINHOUSE_CONFIG", str(stack.data_dir / "trainhouse.toml"))
    monkeypatch.setenv("COLUMNS", "200")
    asked = words.replace("JOB", job)
    quick = printed(asked)
    monkeypatch.setattr(quick_reads, "quick_ways", lambda: quick_reads.QuickWays(None, {}))
    whole = printed(asked)
    assert quick == whole, asked


# Over Kafka these read the schedulers' journals.
OVER_THE_GATEWAY = ("pool show", "pool show --json", "pool show default", "pool show nothing-like-that")


@pytest.mark.parametrize("words", OVER_THE_GATEWAY)
def test_a_question_is_answered_alike_over_the_gateway(words: str, job: str, stack: LiveStack, monkeypatch: pytest.MonkeyPatch) -> None:
    known = tomllib.loads((stack.data_dir / "trainhouse.toml").read_text())["gateway"]
    for name in [name for name in os.environ if name.startswith("TRAINHOUSE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRAINHOUSE_GATEWAY_URL", known["url"])
    monkeypatch.setenv("TRAINHOUSE_GATEWAY_TOKEN", Path(known["token_file"]).read_text().strip())
    quick = printed(words)
    monkeypatch.setattr(quick_reads, "quick_ways", lambda: quick_reads.QuickWays(None, {}))
    assert quick == printed(words)


def test_doctor_finds_the_same_by_both_ways(job: str, stack: LiveStack, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TRAINHOUSE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRAINHOUSE_CONFIG", str(stack.data_dir / "trainhouse.toml"))
    quick = list(deployment_checks.deployment())
    monkeypatch.setattr(quick_reads, "quick_ways", lambda: quick_reads.QuickWays(None, {}))
    assert quick == list(deployment_checks.deployment())
    assert {each.subject for each in quick} == {"kafka", "topics", "versions", "store", "clickhouse", "gateway", "clock"}


@pytest.mark.parametrize("words", PLAIN)
def test_a_question_loads_no_models(words: str, job: str, stack: LiveStack) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TRAINHOUSE_")}
    environment = plain | {"TRAINHOUSE_CONFIG": str(stack.data_dir / "trainhouse.toml")}
    command = [sys.executable, "-c", LOADED, *words.split()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False)
    # `models why` ends with 1 where a condition is not met.
    assert done.returncode == (1 if words.startswith("models why") else 0), done.stderr
    assert "AssertionError" not in done.stderr, done.stderr
