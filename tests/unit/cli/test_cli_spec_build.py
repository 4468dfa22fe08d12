"""From typed options to specs."""

from dataclasses import replace

import pytest

from trainhouse.cli.jobs.spec_build import Typed, default_name, fields_of, parse_data, specs_of
from trainhouse.cli.shared.exit_codes import CliError
from trainhouse.cli.shared.filters import parse_duration_s


def test_a_command_alone_is_a_spec() -> None:
    (spec,) = specs_of(fields_of(Typed(command=("python", "train.py", "--x", "1")), {}, "ada"), None)
    assert spec.runtime.command == ("python", "train.py", "--x", "1")
    assert (spec.name, spec.user, spec.gang.ranks, spec.pool) == ("train", "ada", 1, "default")


def test_every_option_reaches_its_field() -> None:
    typed = Typed(
        command=("python", "t.py"),
        name="n",
        project="p",
        team="t",
        user="u",
        pool="big",
        priority=1,
        gang=4,
        seed=7,
        resume_from="other",
        device="cpu",
        interpreter="/opt/python",
        preemptible=False,
        env=("A=1", "B=x=y"),
        secrets=("TOKEN",),
        hyperparameters=("lr=0.1",),
        labels=("why=test",),
        data="s3://bucket/data#" + "a" * 64,
        every_steps=50,
        keep_last=2,
        register="digits",
        max_run_time="2h",
        restarts=0,
    )
    (spec,) = specs_of(fields_of(typed, {}, "ada"), None)
    assert (spec.name, spec.project, spec.team, spec.user, spec.pool, spec.priority) == ("n", "p", "t", "u", "big", 1)
    assert (spec.gang.ranks, spec.seed, spec.resume_from, spec.preemptible) == (4, 7, "other", False)
    assert (spec.resources.device_type, spec.runtime.interpreter) == ("cpu", "/opt/python")
    assert spec.env == {"A": "1", "B": "x=y"}
    assert spec.secrets == ("TOKEN",)
    assert spec.labels == {"why": "test"}
    assert spec.data is not None
    assert spec.data.uri == "s3://bucket/data"
    assert (spec.checkpoint.every_steps, spec.checkpoint.keep_last) == (50, 2)
    assert (spec.limits.run_time_s, spec.limits.restarts, spec.register) == (7200, 0, "digits")


@pytest.mark.parametrize(
    ("typed", "data"),
    [
        ("speech@1.0.0", {"dataset": "speech@1.0.0"}),
        ("speech@1.0.0:train", {"dataset": "speech@1.0.0", "split": "train"}),
        (f"speech@sha256:{'a' * 64}:train", {"dataset": f"speech@sha256:{'a' * 64}", "split": "train"}),
        (f"s3://b/d@1#{'a' * 64}", {"uri": "s3://b/d@1", "sha256": "a" * 64}),
    ],
)
def test_data_is_a_version_or_an_address_with_its_hash(typed: str, data: dict[str, str]) -> None:
    (spec,) = specs_of(fields_of(Typed(command=("x",), data=typed), {}, "ada"), None)
    assert spec.data is not None and spec.data.model_dump(mode="json") == data


def test_a_layout_is_typed_as_pairs_and_goes_on_top_of_a_files() -> None:
    typed = Typed(command=("x",), gang=4, parallelism="pp=2,schedule=GPipe")
    (spec,) = specs_of(fields_of(typed, {"parallelism": {"dp": 2}}, "ada"), None)
    assert spec.parallelism is not None
    assert spec.parallelism.model_dump(mode="json") == {"dp": 2, "fsdp": 1, "tp": 1, "pp": 2, "schedule": "GPipe"}
    with pytest.raises(CliError, match="--parallelism 'tp': write --parallelism NAME=VALUE"):
        fields_of(Typed(command=("x",), parallelism="tp"), {}, "ada")
    with pytest.raises(CliError, match="--parallelism '': write --parallelism NAME=VALUE"):
        fields_of(Typed(command=("x",), parallelism=""), {}, "ada")
    for wrong, message in (
        ("tp=two", "valid integer"),
        ("tp=2", "but the gang has ranks = 1"),
        ("ep=2", "expert parallelism is not supported"),
    ):
        with pytest.raises(CliError, match=message):
            specs_of(fields_of(Typed(command=("x",), parallelism=wrong), {}, "ada"), None)


def test_an_empty_line_of_a_file_counts_as_not_there() -> None:
    base = dict.fromkeys(("runtime", "parallelism", "env", "labels", "hyperparameters", "secrets", "checkpoint", "limits"))
    typed = Typed(command=("x",), gang=2, parallelism="tp=2", env=("A=1",), labels=("b=2",), hyperparameters=("c=3",), secrets=("D",))
    fields = fields_of(replace(typed, every_steps=4, restarts=5), base, "ada")
    (spec,) = specs_of(fields, None)
    assert spec.parallelism is not None and spec.parallelism.tp == 2
    assert (spec.env, spec.labels, spec.hyperparameters, spec.secrets) == ({"A": "1"}, {"b": "2"}, {"c": 3}, ("D",))
    assert (spec.checkpoint.every_steps, spec.limits.restarts) == (4, 5)


def test_the_launchers_variables_are_refused() -> None:
    with pytest.raises(CliError, match="RANK"):
        specs_of(fields_of(Typed(command=("x",), env=("RANK=3",)), {}, "ada"), None)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "src/train.py"], "train"),
        (["python3.11", "-m", "pkg.examples.gpt"], "gpt"),
        (["/usr/bin/python", "-u", "go.py"], "go"),
        (["./run.sh", "x"], "run.sh"),
        ([], "job"),
        ("text", "job"),
    ],
)
def test_a_job_is_named_after_its_script(command: object, name: str) -> None:
    assert default_name(command) == name


def test_lengths_of_time() -> None:
    assert [parse_duration_s(t) for t in ("90", "90s", "1.5m", "2h", "1d")] == [90, 90, 90, 7200, 86400]
    for wrong in ("", "x", "-1s", "0", "2 years"):
        with pytest.raises(CliError, match="no length of time"):
            parse_duration_s(wrong)


def test_data_is_immutable_or_refused() -> None:
    assert parse_data("file:///x#sha256:" + "0" * 64)["uri"] == "file:///x"
    with pytest.raises(CliError, match="SHA256"):
        parse_data("s3://bucket/data")


def test_parts_of_a_wrong_kind_are_left_to_validation() -> None:
    with pytest.raises(CliError, match="limits"):
        specs_of(fields_of(Typed(command=("x",), restarts=1), {"limits": 3}, "ada"), None)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"register": "vision/digits"}, "'vision/digits' names no model of the job's project: write 1 to 128 letters"),
        ({"register": ""}, "'' names no model"),
        ({"register": "digits", "interactive": {"kind": "shell"}}, "an interactive job saves no checkpoint that could become a version"),
    ],
)
def test_a_model_that_cannot_be_registered_is_refused_with_what_to_write(more: dict[str, object], words: str) -> None:
    with pytest.raises(CliError) as refused:
        specs_of([{"runtime": {"command": ["python", "t.py"]}} | more], None)
    assert words in str(refused.value)
