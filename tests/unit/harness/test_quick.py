"""`make test` and `make test-full` run what they say: every test that is named exists, and none is left out of all."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import settings

from tests import quick
from tests.support import profiles

ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text()
# Fixtures of a whole stack that tests may harm; who asks for one runs in the process that has it.
STACKS = {"own_stack", "two_nodes"}


@pytest.mark.parametrize("test", [test for tests in quick.LISTS.values() for test in tests])
def test_what_is_named_exists(test: str) -> None:
    file, *names = test.partition("[")[0].split("::")
    here: list[ast.stmt] = ast.parse((ROOT / file).read_text()).body
    for name in names:
        (found,) = [node for node in here if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name]
        here = found.body


def test_who_harms_a_stack_runs_where_it_is_and_nowhere_else() -> None:
    asks = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py") if STACKS & arguments(path)}
    assert set(variable("FAULTY").split()) == asks
    assert "$(FAULTY:%=--ignore=%)" in rule("parts") and "$(FAULTY)" in rule("faults")


def test_every_folder_with_tests_is_in_all() -> None:
    folders = {"/".join(path.relative_to(ROOT).parts[:2]) for path in (ROOT / "tests").rglob("test_*.py")}
    run = set(re.findall(r"tests/[a-z/]+(?=\s|$)", rule("unit") + rule("stack") + rule("parts") + rule("pages")))
    assert run == folders
    lanes = {"stack", "faults", "parts", "pages"}
    assert lanes <= set(rule("integration").split()) and lanes | {"unit"} <= set(rule("test-full").split())


@pytest.mark.parametrize(("name", "usual", "many"), [(profiles.QUICK, 20, [80, 10, 6, 1]), (profiles.FULL, 100, [400, 40, 6, 1])])
def test_a_quick_profile_makes_a_part_of_the_examples_and_never_none(name: str, usual: int, many: list[int]) -> None:
    before = settings.get_current_profile_name()
    settings.load_profile(name)
    try:
        assert settings().max_examples == usual and [profiles.examples(full) for full in (400, 40, 6, 1)] == many
    finally:
        settings.load_profile(before)


def arguments(path: Path) -> set[str]:
    """Of all functions in a file."""
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    return {argument.arg for function in functions for argument in function.args.args}


def variable(name: str) -> str:
    """Its value in the Makefile, over all its lines."""
    found = re.search(rf"^{name} := ((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)
    assert found, name
    return found.group(1).replace("\\\n", " ")


def rule(target: str) -> str:
    """What the Makefile does for a target."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found, target
    return found.group(0)
