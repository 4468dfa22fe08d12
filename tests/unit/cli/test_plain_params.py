"""Values that are read without typer's converter: those that typer would give, for each kind of parameter that a command has."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from hypothesis import given, settings
from hypothesis import strategies as st
from typer._coercion import build_runtime_param

from tests.support.profiles import examples
from trainhouse.cli.main import build
from trainhouse.cli.shared.plain_params import REFUSED, plain_value, read_plainly

BOUNDS = ("min", "max", "clamp", "exists", "file_okay", "dir_okay", "writable", "resolve_path", "allow_dash", "path_type")


def parameters(command: Any) -> Iterator[Any]:
    yield from command.params
    for below in getattr(command, "commands", {}).values():
        yield from parameters(below)


WHOLE = typer.main.get_command(build())
KINDS = {
    (str(p.type_descriptor.annotation), *(getattr(p.type_descriptor.parameter_info, name) for name in BOUNDS)): p for p in parameters(WHOLE)
}
TYPED = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(("5", "-5", "+5", " 5", "5_0", "0x5", "٣", "1e3", "nan", "true", "no", "", "-", "/", "/nowhere/at/all", "007")),
    st.sampled_from((Path("/"), Path("nowhere"))),
    st.lists(st.text(max_size=4), max_size=3),
    st.tuples(st.text(max_size=4)),
)


def test_there_are_kinds_to_look_at() -> None:
    assert {kind[0] for kind in KINDS} >= {"<class 'str'>", "<class 'int'>", "<class 'float'>", "<class 'pathlib.Path'>", "list[str]"}


@given(st.sampled_from(sorted(KINDS, key=str)), TYPED)
@settings(max_examples=examples(300))
def test_what_is_read_plainly_is_what_typer_reads(kind: tuple[Any, ...], value: Any) -> None:
    param = KINDS[kind]
    descriptor, is_many = param.type_descriptor, param.multiple or param.nargs == -1
    found = plain_value(value, descriptor.annotation, descriptor.parameter_info, is_many=is_many)
    if found is REFUSED:
        return
    with WHOLE.context_class(WHOLE) as context:
        expected = build_runtime_param(descriptor).coerce(value, param=param, ctx=context)
    assert repr(found) == repr(expected)


@pytest.mark.parametrize(
    "arguments",
    [["status", "--limit", "x"], ["status", "--limit", "0"], ["logs", "job", "--rank", "-1"], ["submit", "--priority", "1.5", "--", "x"]],
)
def test_what_is_refused_is_refused_in_the_words_of_typer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for plainly in (False, True):
        command = typer.main.get_command(build(arguments[0]))
        if plainly:
            read_plainly(command)
        with pytest.raises(SystemExit) as raised:
            command(arguments)
        texts.append((raised.value.code, capsys.readouterr().err))
    assert texts[0] == texts[1]
    assert texts[0][0] == 2
    assert "Invalid value" in texts[0][1]
