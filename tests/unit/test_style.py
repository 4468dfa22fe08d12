"""The style checks: each rule finds what misses it, with its place, and lets the rest be."""

from __future__ import annotations

import ast

import pytest

from tests.style.rules import (
    MAX_FOLDER_MODULES,
    MAX_FUNCTION_LINES,
    MAX_PARAMETERS,
    Source,
    docstring_openings,
    large_folders,
    long_functions,
    long_signatures,
    module_names,
    repeated_basenames,
    speech_names,
    unused_names,
)


def source(text: str, path: str = "scheduler/core/lane.py") -> Source:
    return Source(path, ast.parse(text))


def empty(*paths: str) -> list[Source]:
    return [source("", path) for path in paths]


@pytest.mark.parametrize(
    "opening",
    ["What is due.", "Nobody answered.", "Told by a node.", "Where chunks are.", "One that waits.", "One of many.", "One: a lane."],
)
def test_an_opening_that_defines_nothing_is_found_in_modules_classes_and_functions(opening: str) -> None:
    texts = [f'"""{opening}"""', f'class Lane:\n    """{opening}"""', f'async def lane():\n    """{opening}\n\n    More.\n    """']
    for text, line in zip(texts, (1, 2, 2), strict=True):
        (finding,) = docstring_openings([source(text)])
        assert str(finding).startswith(f"scheduler/core/lane.py:{line}: docstring opens with") and opening in finding.message


@pytest.mark.parametrize(
    "opening", ["Lane of a topic.", "Returns what is due.", "One tensor of a state.", "Whether it is ready.", "Onerous."]
)
def test_an_opening_that_defines_the_thing_is_none(opening: str) -> None:
    assert not list(docstring_openings([source(f'def lane():\n    """{opening}"""')]))


def test_a_body_is_measured_without_its_signature() -> None:
    signature = "def lane(\n" + "".join(f"    option_{n}=None,\n" for n in range(100)) + "):\n"
    fits = signature + "    x = 1\n" * MAX_FUNCTION_LINES
    assert not list(long_functions([source(fits)]))
    (finding,) = long_functions([source(fits + "    y = 1\n")])
    assert finding.line == 1 and f"lane has {MAX_FUNCTION_LINES + 1} lines" in finding.message


def many(count: int) -> str:
    return ", ".join(f"p{n}=None" for n in range(count))


def test_a_constructor_or_function_takes_so_many_parameters_beside_self_and_no_more() -> None:
    constructor = "class Lane:\n    def __init__(self, {}) -> None: ..."
    function = "async def lane(first, *, {}): ..."
    for text, others in ((constructor, 0), (function, 1)):
        assert not list(long_signatures([source(text.format(many(MAX_PARAMETERS - others)))]))
        (finding,) = long_signatures([source(text.format(many(MAX_PARAMETERS - others + 1)))])
        assert (
            f"has {MAX_PARAMETERS + 1} parameters, at most {MAX_PARAMETERS}" in finding.message and "settings dataclass" in finding.message
        )
    assert str(finding).startswith("scheduler/core/lane.py:1: lane ")


def test_commands_and_routes_may_take_more() -> None:
    command = f'def register(app):\n    app.command("lane")(lane)\ndef lane({many(30)}): ...'
    route = f'@router.get("/lanes")\ndef lanes({many(30)}): ...'
    assert not list(long_signatures([source(command), source(route)]))
    (finding,) = long_signatures([source(f'@cached("lane")\n{command[command.index("def lane") :]}')])
    assert finding.line == 2


def test_a_module_of_a_banned_name_is_found() -> None:
    (finding,) = module_names(empty("scheduler/core/whoever.py", "scheduler/core/lanes.py"))
    assert finding.path == "scheduler/core/whoever.py"


def test_a_folder_may_hold_so_many_modules_beside_its_init() -> None:
    fits = [f"scheduler/core/m{n}.py" for n in range(MAX_FOLDER_MODULES)] + ["scheduler/core/__init__.py"]
    assert not list(large_folders(empty(*fits)))
    (finding,) = large_folders(empty(*fits, "scheduler/core/more.py", *(f"events/model/e{n}.py" for n in range(50))))
    assert (finding.path, finding.line) == ("scheduler/core", 0) and "21 modules" in finding.message


def test_a_basename_may_be_in_two_packages_and_that_of_errors_in_all() -> None:
    two = ["events/lane.py", "workers/lane.py", "events/model/errors.py", "workers/errors.py", "deploy/errors.py"]
    assert not list(repeated_basenames(empty(*two)))
    (finding,) = repeated_basenames(empty(*two, "deploy/lane.py"))
    assert "deploy/lane.py, events/lane.py, workers/lane.py" in finding.message


def test_a_name_without_a_caller_needs_a_reason_and_a_reason_such_a_name() -> None:
    found = [("events/lane.py", 3, "function", "lane"), ("events/lane.py", 9, "class", "Lane")]
    unexplained, stale = unused_names(found, {"lane": "called by torch", "gone": "called by torch"})
    assert (unexplained.path, unexplained.line) == ("events/lane.py", 9) and "class Lane has no caller" in unexplained.message
    assert "gone needs no exception any more" in stale.message


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("class NodeSays: ...", "NodeSays"),
        ("class WhoAmI: ...", "WhoAmI"),
        ("def tell_all(): ...", "tell_all"),
        ("async def _hear(): ...", "_hear"),
        ("def lane(*, who): ...", "who"),
        ("def lane(**told): ...", "told"),
        ("MAX_TOLD = 3", "MAX_TOLD"),
        ("for said in lane: ...", "said"),
        ("lane = [heard for heard in lane]", "heard"),
        ("with lane() as telling: ...", "telling"),
        ("if (_untold := lane()): ...", "_untold"),
        ("lane.heard_at_s += 1", "heard_at_s"),
        ("from lane import Lane as Teller", "Teller"),
        ("try: ...\nexcept OSError as said: ...", "said"),
        ("match lane:\n    case [whose, *nobody]: ...", "nobody whose"),
        ("match lane:\n    case {**heard}: ...", "heard"),
        ("def lane(tells: str):\n    tells = tells.strip()", "tells"),
    ],
)
def test_a_verb_of_speech_or_a_pronoun_is_no_name(text: str, name: str) -> None:
    found = list(speech_names([source(text)], {}))
    assert [f"{f.path} {f.message.split()[0]}" for f in found] == [f"scheduler/core/lane.py {each}" for each in name.split()]
    assert all(f.line for f in found)


@pytest.mark.parametrize(
    "text", ["whole = retold = tellurium = essays = 1", "lane.told.who(nobody, heard=says)", '"""told"""', "def hearing(): ..."]
)
def test_a_name_that_only_contains_such_a_word_or_is_only_read_is_none(text: str) -> None:
    assert not list(speech_names([source(text)], {}))


def test_a_name_of_speech_needs_a_reason_at_its_place_and_a_reason_such_a_name() -> None:
    sources = [source("def tell(): ..."), source("def tell(): ...", "scheduler/core/other.py")]
    known, gone = ("scheduler/core/lane.py", "tell"), ("scheduler/core/lane.py", "told")
    elsewhere, stale = speech_names(sources, {known: "io.IOBase", gone: "a field"})
    assert (elsewhere.path, elsewhere.line) == ("scheduler/core/other.py", 1)
    assert "told of scheduler/core/lane.py needs no exception any more" in stale.message
