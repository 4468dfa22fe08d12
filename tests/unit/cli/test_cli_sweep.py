"""Hyperparameters as typed words, and the jobs of a sweep."""

import pytest

from trainhouse.cli.jobs.sweep import MAX_SWEEP_JOBS, differing, parse_value, parse_values, points
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.run_names import name_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("1e-3", 1e-3),
        ("0.1", 0.1),
        ("true", True),
        ("False", False),
        ("null", None),
        ("adam", "adam"),
        ('"3"', "3"),
        ("'true'", "true"),
        ("", ""),
    ],
)
def test_words_get_the_type_that_people_mean(text: str, value: object) -> None:
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


def test_a_sweep_is_the_product_in_the_order_of_typing() -> None:
    assert points(["lr=0.1,0.01", "width=64,128"]) == [
        {"lr": 0.1, "width": 64},
        {"lr": 0.1, "width": 128},
        {"lr": 0.01, "width": 64},
        {"lr": 0.01, "width": 128},
    ]


def test_no_sweep_is_one_job() -> None:
    assert points([]) == [{}]


@pytest.mark.parametrize("sweep", [["lr"], ["=1"], ["lr=0.1,,0.2"], ["lr=1", "lr=2"], ["lr="]])
def test_a_broken_sweep_says_what_to_write(sweep: list[str]) -> None:
    with pytest.raises(CliError, match=r"--sweep") as caught:
        points(sweep)
    assert caught.value.code == Exit.USAGE


def test_a_sweep_has_a_bound() -> None:
    hundred = ",".join(map(str, range(100)))
    assert len(points([f"a={hundred}", "b=" + ",".join(map(str, range(10)))])) == MAX_SWEEP_JOBS
    with pytest.raises(CliError, match="more than 1000"):
        points([f"a={hundred}", "b=" + ",".join(map(str, range(11)))])


def test_a_hyperparameter_is_given_once() -> None:
    assert parse_values(["a=1", "b=x=y"], "-p") == {"a": 1, "b": "x=y"}
    with pytest.raises(CliError, match="twice"):
        parse_values(["a=1", "a=2"], "-p")


def test_jobs_of_a_sweep_are_named_by_what_differs() -> None:
    sweeps = ["lr=0.1,0.01", "seed=7", "opt=adam,sgd"]
    assert name_of("lr-sweep", differing(sweeps), {"lr": 0.1, "seed": 7, "opt": "sgd"}) == "lr-sweep lr=0.1 opt=sgd"
    assert name_of("one", differing(["seed=7"]), {"seed": 7}) == "one"
    long = name_of("n" * 128, differing(["text=a,b"]), {"text": "x" * 200 + "\n"})
    assert len(long) == 128 and long.endswith("…") and long.startswith("n")
