"""MLflow's filter language: what it reads, and what it refuses with which words."""

import pytest

from trainhouse.gateway.mlflow.errors import MlflowError
from trainhouse.gateway.mlflow.filter_language import EXPERIMENTS, RUNS, Condition, Entity, Ordering, parse_filter, parse_orders

A, M, P, T, D = Entity.ATTRIBUTE, Entity.METRIC, Entity.PARAMETER, Entity.TAG, Entity.DATASET


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("metrics.loss < 0.5", [Condition(M, "loss", "<", 0.5)]),
        ("metric.`val/acc top 1`>=-1e-3", [Condition(M, "val/acc top 1", ">=", -1e-3)]),
        ("metrics.eval/loss.ema != 3", [Condition(M, "eval/loss.ema", "!=", 3.0)]),
        ("params.model = 'gpt' AND tags.team='a b'", [Condition(P, "model", "=", "gpt"), Condition(T, "team", "=", "a b")]),
        ('params."lr rate" LIKE "1e%"', [Condition(P, "lr rate", "LIKE", "1e%")]),
        ("tags.`mlflow.runName` ilike '%Fox%'", [Condition(T, "mlflow.runName", "ILIKE", "%Fox%")]),
        ("tags.mlflow.parentRunId = 'r'", [Condition(T, "mlflow.parentRunId", "=", "r")]),
        (
            "status = 'FINISHED' and start_time > 1700000000000",
            [Condition(A, "status", "=", "FINISHED"), Condition(A, "start_time", ">", 1.7e12)],
        ),
        (
            "attributes.run_id IN ('a','b') and run_id NOT IN ('c')",
            [Condition(A, "run_id", "IN", ("a", "b")), Condition(A, "run_id", "NOT IN", ("c",))],
        ),
        ("params.x IS NULL and tags.y is not null", [Condition(P, "x", "IS NULL", None), Condition(T, "y", "IS NOT NULL", None)]),
        ('attributes.`Run name` = "it\'s"', [Condition(A, "run_name", "=", "it's")]),
        ("dataset.digest = 'd1'", [Condition(D, "digest", "=", "d1")]),
        ("params.a = 'x and y' and params.b = 'or'", [Condition(P, "a", "=", "x and y"), Condition(P, "b", "=", "or")]),
    ],
)
def test_what_is_read(text: str, expected: list[Condition]) -> None:
    assert parse_filter(text, RUNS) == expected


@pytest.mark.parametrize(
    "text",
    [
        "metrics.loss < 'x'",
        "metrics.loss LIKE 1",
        "params.a = 3",
        "params.a = b",
        "params.a > '3'",
        "params.a = 'x' OR params.b = 'y'",
        "params.a = 'x' params.b = 'y'",
        "secrets.a = 'x'",
        "attributes.nothing = 'x'",
        "dataset.size = 'x'",
        "metrics.loss <",
        "metrics.loss",
        "run_id IN 'a'",
        "run_id IN ('a' 'b')",
        "run_id IN ('a',",
        "params.a = 'unclosed",
        "'x' = 'x'",
        "; DROP TABLE jobs",
        "params. = 'x'",
        "start_time LIKE 'x'",
        "params.a IS 'x'",
    ],
)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(MlflowError) as refused:
        parse_filter(text, RUNS)
    assert refused.value.code == "INVALID_PARAMETER_VALUE"


def test_a_filter_is_bounded() -> None:
    with pytest.raises(MlflowError, match="more than 100"):
        parse_filter(" and ".join(["params.a = 'x'"] * 101), RUNS)


def test_orders() -> None:
    assert parse_orders(["metrics.loss DESC", "start_time", "params.`a b` asc"], RUNS) == [
        Ordering(M, "loss", True),
        Ordering(A, "start_time", False),
        Ordering(P, "a b", False),
    ]
    with pytest.raises(MlflowError, match="order_by"):
        parse_orders(["metrics.loss sideways"], RUNS)


def test_experiments_have_a_language_of_their_own() -> None:
    assert parse_filter("name LIKE 'vision/%' and tags.k = 'v'", EXPERIMENTS) == [
        Condition(A, "name", "LIKE", "vision/%"),
        Condition(T, "k", "=", "v"),
    ]
    with pytest.raises(MlflowError, match="metrics"):
        parse_filter("metrics.loss < 1", EXPERIMENTS)
