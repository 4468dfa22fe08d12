"""`trainhouse data join`: features as they were known at the time of each label."""

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from trainhouse.cli.data.dataset_access import explained
from trainhouse.cli.shared.exit_codes import CliError, Exit

if TYPE_CHECKING:
    import polars as pl

_READ = (".parquet", ".csv", ".jsonl")


def join(
    labels: Annotated[Path, typer.Argument(help="Rows with a time each: a .parquet, .csv or .jsonl file.", show_default=False)],
    features: Annotated[Path, typer.Argument(help="Values with the time from which each was known.", show_default=False)],
    out: Annotated[Path, typer.Option(help="File for the joined rows: .parquet, .csv or .jsonl.", show_default=False)],
    label_time: Annotated[str, typer.Option(help="Column of the labels with their time.")] = "time",
    feature_time: Annotated[str, typer.Option(help="Column of the features with the time from which a value was known.")] = "time",
    by: Annotated[Optional[list[str]], typer.Option(metavar="COLUMN", help="Column of the entity, in both; repeatable.")] = None,  # noqa: UP045
    strictly: Annotated[bool, typer.Option("--strictly", help="A value of exactly the label's time counts no more.")] = False,
    max_age: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="7d", help="Older values do not count: 90s, 2h, 7d; a number where times are numbers."),
    ] = None,
    time_as: Annotated[str, typer.Option(help="Column of the result with the time of the values.")] = "feature_time",
) -> None:
    """Join to each label the newest features that were known at its time, never later ones.

    \b
    trainhouse data join clicks.parquet profiles.parquet --by user \\
        --out train.parquet

    Times are compared exactly, whatever their units; those with and without a zone are not compared. Publish the result with
    `trainhouse data publish`.
    """
    try:
        import polars
    except ImportError as error:
        raise CliError("joining needs the package polars: pip install 'trainhouse[data]'", Exit.CONFIG) from error
    from trainhouse.workers.data.feature_join import JoinRule, joined

    if out.suffix not in _READ:
        raise CliError(f"{out}: name a file that ends in {', '.join(_READ)}", Exit.USAGE)
    try:
        left, right = _read(labels), _read(features)
        rule = JoinRule(tuple(by or ()), label_time, feature_time, strictly, _age(max_age), time_as)
        with explained():
            found = joined(left, right, rule)
        _write(found, out)
    except (OSError, polars.exceptions.PolarsError) as error:
        raise CliError(f"{labels}, {features}, {out}: {error}", Exit.USAGE) from error
    known = found.height - found[time_as].null_count()
    sys.stdout.write(f"{found.height} rows in {out}; {known} with features, {found.height - known} without any that were known\n")


def _age(text: str | None) -> timedelta | int | None:
    from trainhouse.cli.shared.filters import parse_duration_s

    if text is None:
        return None
    return int(text) if text.isdecimal() else timedelta(seconds=parse_duration_s(text))


def _read(path: Path) -> "pl.DataFrame":
    import polars as pl

    match path.suffix:
        case ".parquet":
            return pl.read_parquet(path)
        case ".csv":
            return _with_times(pl.read_csv(path))
        case ".jsonl":
            return _with_times(pl.read_ndjson(path))
    raise CliError(f"{path}: read are files that end in {', '.join(_READ)}", Exit.USAGE)


def _with_times(table: "pl.DataFrame") -> "pl.DataFrame":
    """Columns of text that are all dates, or times in ISO 8601, as those; to the nanosecond, since less would round them."""
    import polars as pl

    parsers: tuple[Callable[[pl.Series], pl.Series], ...] = (
        lambda column: column.str.to_date("%Y-%m-%d"),
        lambda column: column.str.to_datetime(time_unit="ns"),
        lambda column: column.str.to_datetime(time_unit="ns", time_zone="UTC"),
    )
    for name in [name for name, kind in table.schema.items() if kind == pl.String]:
        for parse in parsers:
            try:
                table = table.with_columns(parse(table[name]).alias(name))
                break
            except pl.exceptions.PolarsError:
                continue
    return table


def _write(table: "pl.DataFrame", path: Path) -> None:
    match path.suffix:
        case ".parquet":
            table.write_parquet(path)
        case ".csv":
            table.write_csv(path)
        case _:
            table.write_ndjson(path)
