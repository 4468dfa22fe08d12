"""What the pages' routes and command decide without servers."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

from trainhouse.cli.stack.open import login_address, path_of
from trainhouse.gateway.differences import differing, lines
from trainhouse.gateway.pages import router
from trainhouse.gateway.routes.compare import counted
from trainhouse.gateway.routes.curves import FOR_EVER, counted_until
from trainhouse.gateway.routes.fleet import letters
from trainhouse.workers import Session

ADVISED = r"session\.\w+\((?:[^()`]|\([^()`]*\))*\)"


def test_steps_of_an_attempt_count_until_a_later_one_began_before_them() -> None:
    epochs = [{"epoch": 1, "first": 0, "last": 80}, {"epoch": 2, "first": 60, "last": 70}, {"epoch": 3, "first": 40, "last": 90}]
    assert counted_until(epochs) == [40, 40, FOR_EVER]
    assert counted_until([]) == []


def test_only_jobs_with_several_attempts_need_their_steps_taken_out() -> None:
    rows = [{"job_id": "a", "epoch": 1, "first": 0}, {"job_id": "b", "epoch": 1, "first": 0}, {"job_id": "b", "epoch": 2, "first": 7}]
    assert counted(rows) == {"several": ["b"], "keys": ["b/1", "b/2"], "ends": [7, FOR_EVER]}


def test_devices_of_a_node_are_letters() -> None:
    held = [["RUNNING", 2], ["INITIALIZING", 1], ["CHECKPOINTING", 1]]
    assert letters("ALIVE", "NONE", 8, held) == "RRSCFFFF"
    assert letters("ALIVE", "CORDONED", 6, held) == "RRSCXX"
    assert letters("LOST", "NONE", 4, held) == "LLLL"
    assert letters("SUSPECTED", "NONE", 4, []) == "DDDD"
    assert letters("ALIVE", "NONE", 3, held) == "RRS", "no more letters than devices, whatever is told"


def test_configs_differ_where_a_value_or_a_field_does() -> None:
    one = lines({"lr": 1, "gang": {"ranks": 2, "roles": []}, "name": "x"})
    other = lines({"lr": 2, "gang": {"ranks": 2, "roles": []}, "extra": {"deep": None}})
    assert one == {"lr": 1, "gang.ranks": 2, "gang.roles": [], "name": "x"}
    assert differing({"a": one, "b": other}) == [
        {"path": "extra.deep", "values": {"b": None}},
        {"path": "lr", "values": {"a": 1, "b": 2}},
        {"path": "name", "values": {"a": "x"}},
    ]


def test_the_address_that_takes_a_code_names_a_page_of_ours() -> None:
    assert (path_of(None), path_of("jobs"), path_of("j/../x")) == ("/", "/jobs", "/jobs/j%2F..%2Fx")
    assert login_address("http://h:1/", "/jobs", "a=&b") == "http://h:1/login?code=a%3D%26b&to=%2Fjobs"


def test_the_pages_name_no_other_host_and_run_nothing_inline() -> None:
    assert "script-src 'self'" in router.HEADERS["Content-Security-Policy"]
    own = [p for p in Path(router.STATIC).rglob("*") if p.suffix in (".js", ".css", ".html") and "vendor" not in p.parts]
    assert len(own) > 30
    for path in [*own, router.INDEX]:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text and "http://" not in text and " onclick=" not in text, path


def test_each_vendored_library_has_its_licence() -> None:
    folders = [folder for folder in (router.STATIC / "vendor").iterdir() if folder.is_dir()]
    assert folders and all((folder / "LICENSE").is_file() for folder in folders)


def test_calls_that_the_pages_advise_are_calls_that_work() -> None:
    advised = [call for path in (router.STATIC / "app").rglob("*.js") for call in re.findall(ADVISED, path.read_text("utf-8"))]
    assert len(advised) >= 2
    for text in advised:
        call = ast.parse(text.replace("…", "1"), mode="eval").body
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        named = {word.arg: 0 for word in call.keywords if word.arg is not None}
        inspect.signature(getattr(Session, call.func.attr)).bind(None, *call.args, **named)
