"""Evaluation from files: `python -m trainhouse.workers.evaluation run | version | compare | report | drift`.

`run` is the program of an ordinary job, `version` that of a job which the registry of models submits; the others read results that were
written before, and need no stack.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trainhouse.workers.data.errors import DamagedShardError, InvalidDataError
from trainhouse.workers.evaluation.errors import InvalidEvaluationError, UnpairedResultsError

if TYPE_CHECKING:
    from trainhouse.workers.evaluation.evaluation_spec import EvaluationSpec

FAILED: Final = 1
INVALID: Final = 2
_SHOWN_METRICS: Final = "{name:<28} {value:>12.6g}  {interval:<28} {samples:>9} samples"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0; 1 of a comparison that does not pass, or of drift; 2 of input that is none."""
    flags = _parser().parse_args(arguments)
    try:
        return int(flags.function(flags))
    except (InvalidEvaluationError, UnpairedResultsError, InvalidDataError, DamagedShardError) as error:
        sys.stderr.write(f"{error}\n")
        return INVALID


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainhouse.workers.evaluation", description=__doc__)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="evaluate one version as a YAML file describes; writes result.json and samples.parquet")
    run.add_argument("spec", type=Path)
    run.add_argument("--out", type=Path, default=Path("evaluation"), help="folder for the files")
    run.add_argument("--no-artifact", action="store_true", help="store no artifact: the folder is all that there is afterwards")
    run.set_defaults(function=_run)
    version = commands.add_parser("version", help="evaluate a version of a model in a job, as the registry describes it")
    version.add_argument("described", help="the version and the evaluation, as JSON")
    version.add_argument("--out", type=Path, default=Path("evaluation"), help="folder for the files")
    version.set_defaults(function=_version)
    compare = commands.add_parser("compare", help="compare two results of one suite on the same samples; exit status 1 unless it passes")
    compare.add_argument("first", type=Path, help="result.json of the candidate")
    compare.add_argument("second", type=Path, help="result.json of the champion, or of a baseline")
    compare.add_argument("--out", type=Path, help="file for the comparison as JSON")
    _limits(compare)
    compare.set_defaults(function=_compare)
    report = commands.add_parser("report", help="write a report of one result, compared with others, as Markdown and HTML")
    report.add_argument("first", type=Path, help="result.json of the version that the report is on")
    report.add_argument("others", type=Path, nargs="*", help="results of the champion and of baselines")
    report.add_argument("--out", type=Path, required=True, help="folder for report.md and report.html")
    report.add_argument("--title", default="", help="heading; default: the suite")
    _limits(report)
    report.set_defaults(function=_report)
    drift = commands.add_parser("drift", help="compare live rows with a reference, two Parquet files; exit status 1 where a field drifted")
    drift.add_argument("reference", type=Path)
    drift.add_argument("live", type=Path)
    drift.add_argument("--seed", type=int, default=0)
    drift.set_defaults(function=_drift)
    return parser


def _limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--margin", action="append", default=[], metavar="METRIC=LOSS", help="loss that is no loss; may be repeated")
    parser.add_argument("--alpha", type=float, default=0.05, help="probability of a false claim among all metrics and groups")
    parser.add_argument("--least-samples", type=int, default=100, help="samples below which there is no verdict")
    parser.add_argument("--seed", type=int, default=0, help="seed of the bootstrap")


def _run(flags: argparse.Namespace) -> int:
    from trainhouse.workers.evaluation.evaluation_spec import read_spec

    return _evaluate(read_spec(flags.spec), flags.out, is_stored=not flags.no_artifact)


def _version(flags: argparse.Namespace) -> int:
    import tempfile

    from trainhouse.checkpointing.lease.signed_store import open_artifact_store
    from trainhouse.checkpointing.settings import StoreSettings
    from trainhouse.workers.evaluation.version_evaluation import read_version

    version = read_version(flags.described)
    with tempfile.TemporaryDirectory(prefix="version-", dir=".") as made:
        files = Path(made).absolute() / "files"
        spec = version.spec(files)
        version.fetch(open_artifact_store(StoreSettings()), files)
        return _evaluate(spec, flags.out, is_stored=True)


def _evaluate(spec: "EvaluationSpec", out: Path, *, is_stored: bool) -> int:
    import os

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA starts: cuBLAS then has one order of sums
    from trainhouse.workers import Session
    from trainhouse.workers.evaluation.evaluation_run import run_evaluation
    from trainhouse.workers.evaluation.result import RESULT_NAME, artifact_name

    session = Session.start()
    with session:
        result = run_evaluation(spec, session, out)
        session.log({f"evaluation/{name}": metric.value for name, metric in result.metrics.items()})
        if is_stored:
            # A command may write the same in other bytes, and a result is named by its own.
            (out / RESULT_NAME).write_bytes(result.canonical_json())
            session.log_artifact(out, name=artifact_name(spec.suite), kind="evaluation")
    for name, metric in sorted(result.metrics.items()):
        interval = "" if metric.low is None or metric.high is None else f"{metric.low:.6g} to {metric.high:.6g}"
        print(_SHOWN_METRICS.format(name=name, value=metric.value, interval=interval, samples=metric.samples))
    print(f"result sha256 {result.sha256}")
    return 0


def _compare(flags: argparse.Namespace) -> int:
    from trainhouse.workers.evaluation.evaluation_report import compare_files, comparison_lines

    found = compare_files(
        flags.first, flags.second, margins_of(flags.margin), alpha=flags.alpha, least=flags.least_samples, seed=flags.seed
    )
    if flags.out is not None:
        flags.out.write_bytes(found.canonical_json())
    print("\n".join(comparison_lines(found)))
    return 0 if found.verdict.passes and (found.groups_verdict is None or found.groups_verdict.passes) else FAILED


def _report(flags: argparse.Namespace) -> int:
    from trainhouse.workers.evaluation.evaluation_report import write_report

    limits = {"alpha": flags.alpha, "least": flags.least_samples, "seed": flags.seed}
    for path in write_report(flags.first, flags.others, flags.out, flags.title, margins_of(flags.margin), **limits):
        print(path)
    return 0


def _drift(flags: argparse.Namespace) -> int:
    from trainhouse.events.model.model_observations import LiveVerdict
    from trainhouse.workers.evaluation.drift import LiveLimits, live_drift
    from trainhouse.workers.evaluation.profiled_rows import profiled_file

    found = live_drift(profiled_file(flags.reference), profiled_file(flags.live), LiveLimits(seed=flags.seed))
    for each in found:
        verdict = each.verdict.value.lower().replace("_", " ")
        print(f"{each.field:<28} {verdict:<8} {each.reason}".rstrip())
    return FAILED if any(each.verdict in (LiveVerdict.DRIFTED, LiveVerdict.MISSING) for each in found) else 0


def margins_of(given: Sequence[str]) -> dict[str, float]:
    """Margins by metric, of texts METRIC=LOSS. Raises InvalidEvaluationError."""
    found = dict[str, float]()
    for text in given:
        name, _, loss = text.partition("=")
        try:
            found[name] = float(loss)
        except ValueError as error:
            raise InvalidEvaluationError(f"margin {text!r}: write METRIC=LOSS, as in accuracy=0.005") from error
    return found


if __name__ == "__main__":
    sys.exit(main())
