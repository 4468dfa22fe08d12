"""README.md and docs/: what may stand there, that data in it is valid, and that the documentation builds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
import yaml

from tests.documentation.blocks import DATA, ROOT, Block, blocks_of, pages, script
from trainhouse.events.model.base import event_class
from trainhouse.events.model.model_gate import ModelGate
from trainhouse.events.model.policy import SchedulingPolicy
from trainhouse.events.model.spec import JobSpec
from trainhouse.events.model.study import StudySpec
from trainhouse.events.model.study_shorthand import spelled_out
from trainhouse.reference import setting_pages
from trainhouse.reference.pages import render
from trainhouse.scheduler.core.state.transitions import render_markdown
from trainhouse.workers.data.prepare.preparation import Preparation
from trainhouse.workers.evaluation.evaluation_spec import EvaluationSpec

# Blocks that no test runs, by page: each has its reason beside it. Whoever adds one changes the number here.
NOT_RUN = {
    "README.md": 2,
    "docs/howto/datasets.md": 1,
    "docs/howto/interactive.md": 3,
    "docs/howto/models.md": 1,
    "docs/howto/track.md": 1,
    "docs/internals/checkpoints.md": 1,
    "docs/operate/many-machines.md": 2,
    "docs/operate/one-machine.md": 1,
    "docs/operate/watching.md": 1,
}


def all_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks_of(page)]


def test_blocks_that_no_test_runs_are_counted() -> None:
    found: dict[str, int] = {}
    for block in all_blocks():
        if block.reason_not_run:
            found[block.page] = found.get(block.page, 0) + 1
    assert found == NOT_RUN


def test_every_console_block_has_commands_and_bash_can_read_every_page() -> None:
    for block in all_blocks():
        assert block.language != "console" or block.commands, f"{block.place} has no line that begins with `$ `"
    for page in pages():
        for alone in (False, True):
            checked = subprocess.run(["bash", "-n"], input=script(blocks_of(page), alone), capture_output=True, text=True)
            assert checked.returncode == 0, f"{page}: {checked.stderr}"


def test_files_of_a_page_have_different_names_and_are_named_by_it() -> None:
    for page in pages():
        titles = [b.title for b in blocks_of(page) if b.title]
        assert len(set(titles)) == len(titles), page
        commands = "\n".join(c for b in blocks_of(page) if b.language == "console" for c in b.commands)
        assert not [t for t in titles if t not in commands], f"{page}: no command uses these files"


def test_data_is_valid() -> None:
    for block in all_blocks():
        if block.language in DATA:
            _validate(block)


def _validate(block: Block) -> None:
    found = orjson.loads(block.text) if block.language == "json" else yaml.safe_load(block.text)
    if "specversion" in found:
        event_class(found["type"]).model_validate(found["data"])
    elif "space" in found:
        spec = {name: value for name, value in found.items() if name not in ("name", "project")}
        StudySpec.model_validate(spelled_out(spec | {"job": {"name": "job"} | spec["job"]}))
    elif "runtime" in found:
        JobSpec.model_validate(found)
    elif "output" in found:
        Preparation.parse(found)
    elif "suites" in found:
        ModelGate.model_validate(found)
    elif "suite" in found:
        EvaluationSpec.model_validate({k: tuple(v) if isinstance(v, list) else v for k, v in found.items()})
    elif "members" not in found:
        SchedulingPolicy.model_validate(found)


def test_no_indented_code_stands_in_the_pages() -> None:
    for page in pages():
        fenced = False
        before = ""
        for number, line in enumerate(page.read_text().splitlines(), 1):
            fenced ^= line.lstrip().startswith("```")
            assert fenced or before or not line.startswith("    "), f"{page}:{number}: fence it, so that it is run"
            before = line.strip()


@pytest.mark.parametrize(("name", "lines"), [("README.md", 150), ("ARCHITECTURE.md", 150)])
def test_the_first_pages_stay_short(name: str, lines: int) -> None:
    assert len((ROOT / name).read_text().splitlines()) <= lines


def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "-d", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert (tmp_path / "reference/cli.html").exists()


def test_the_reference_has_every_state_and_every_group_of_settings() -> None:
    made = render()
    assert render_markdown() in made["reference/job-states.md"]
    prefixes = {str(group.model_config.get("env_prefix")) for group in setting_pages.GROUPS}
    assert all(f"`{prefix}" in made["reference/settings.md"] for prefix in prefixes)
    assert sorted(_groups()) == sorted(f"{g.__module__}.{g.__name__}" for g in setting_pages.GROUPS)


def _groups() -> list[str]:
    """Groups by the sources, so that one counts that nothing here imports."""
    listed = subprocess.run(
        ["git", "grep", "-nE", r"^class \w+\(TomlSection\)", "--", "*.py", ":!tests"], cwd=ROOT, capture_output=True, text=True
    )
    found = (re.fullmatch(r"(?:trainhouse/)?(.+)\.py:\d+:class (\w+)\(.*", line) for line in listed.stdout.splitlines())
    return [f"trainhouse.{m[1].replace('/', '.')}.{m[2]}" for m in found if m]


@pytest.mark.parametrize("page", ["job-spec", "policy", "events", "settings", "http-api"])
def test_every_field_of_the_reference_has_a_meaning(page: str) -> None:
    empty, section = [], ""
    for line in render()[f"reference/{page}.md"].splitlines():
        section = line if line.startswith("#") else section
        if line.startswith("| `") and line.endswith("|  |") and section != "## Topics":
            empty.append(f"{section}: {line.split('|')[1].strip()}")
    assert not empty, f"{len(empty)} fields have no description: {', '.join(empty[:20])}"


IMPERATIVES = re.compile(
    "Add|Allow|Apply|Approve|Archive|Build|Cancel|Change|Check|Close|Compare|Copy|Create|Declare|Delete|Empty|Emulate|End|Evaluate|Explain|Export|Fetch|Find|"
    "Forget|Give|Grant|Import|Join|Keep|Let|List|Make|Move|Name|Open|Place|Prepare|Print|Pause|Promote|Prove|Publish|Put|Re-run|Read|Record|Register|Reject|Remove|Repair|"
    "Report|Resume|Review|Revoke|Run|Send|Set|Show|Start|Stop|Store|Submit|Search|Sweep|Tag|Take|Use|Watch|Write"
)


def test_the_help_of_every_command_begins_with_an_imperative() -> None:
    helps = re.findall(r"^## (trainhouse .+)\n\n```text\nUsage: .+\n\n  (\S+)", render()["reference/cli.md"], re.MULTILINE)
    assert len(helps) > 80
    others = [f"{command}: {word}" for command, word in helps if not IMPERATIVES.fullmatch(word.rstrip(":,"))]
    assert not others, f"begin with what the command does, as List or Show; a new verb goes into IMPERATIVES: {', '.join(others)}"


def test_modules_that_the_documentation_names_are_there() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = {page: page.read_text("utf-8") for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]}
    named = {(page.name, name) for page, text in texts.items() for name in re.findall(r"`([a-z_]+/[a-z_0-9/]+\.py)`", text)}
    assert len(named) > 20
    assert not {(page, name) for page, name in named if not any(f"/{path}".endswith(f"/{name}") for path in listed)}
