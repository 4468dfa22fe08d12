"""What tests share ends after the last of them that names it, also where others come after that test."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = f"""
import sys
from contextlib import ExitStack
from pathlib import Path
import pytest
sys.path.append({str(Path(__file__).parents[3])!r})
from tests.support.last_use import after, end_after_last_use

@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item):
    after(item)
"""
SHARED = """
@pytest.fixture(scope="session")
def stack(request):
    with ExitStack() as held:
        held.callback(print, "ENDED")
        end_after_last_use(request, Path(__file__).parent, held.close)
        yield

@pytest.fixture
def by_way(stack):
    yield
    print("LET GO")
"""


def test_it_ends_once_between_its_last_test_and_the_next(pytester: pytest.Pytester) -> None:
    here = pytester.path
    (here / "conftest.py").write_text(CONFTEST)
    (here / "a").mkdir()
    (here / "a" / "conftest.py").write_text(CONFTEST.partition("@")[0] + SHARED)
    (here / "a" / "test_a.py").write_text(
        "def test_1(stack): print('ONE')\ndef test_2(): print('TWO')\ndef test_3(by_way): print('THREE')\ndef test_4(): print('FOUR')\n"
    )
    (here / "b").mkdir()
    (here / "b" / "test_b.py").write_text("import pytest\n@pytest.fixture\ndef stack(): pass\ndef test_5(stack): print('FIVE')\n")
    done = pytester.runpytest_subprocess("-s", "-p", "no:cacheprovider", f"--rootdir={here}")
    done.assert_outcomes(passed=5)
    said = [word for word in ("ONE", "TWO", "THREE", "LET GO", "ENDED", "FOUR", "FIVE") if word in done.stdout.str()]
    assert sorted(said, key=done.stdout.str().index) == ["ONE", "TWO", "THREE", "LET GO", "ENDED", "FOUR", "FIVE"]
    assert done.stdout.str().count("ENDED") == 1


def test_it_ends_where_the_run_stops_before(pytester: pytest.Pytester) -> None:
    (pytester.path / "conftest.py").write_text(CONFTEST + SHARED)
    pytester.makepyfile("def test_1(stack): assert False\ndef test_2(stack): pass\n")
    done = pytester.runpytest_subprocess("-s", "-x", "-p", "no:cacheprovider")
    done.assert_outcomes(failed=1)
    assert done.stdout.str().count("ENDED") == 1
