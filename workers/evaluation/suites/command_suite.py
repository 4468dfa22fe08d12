"""A suite that is any command: it writes the documented result, which is read and compared with what was asked for.

Holds: a result of another suite, version, seed or batch size is refused, and so is one whose results by sample are not there.
"""

import os
import subprocess
from pathlib import Path
from typing import Final

from trainhouse.workers.evaluation.errors import InvalidEvaluationError
from trainhouse.workers.evaluation.evaluation_spec import EvaluationSpec
from trainhouse.workers.evaluation.result import EvaluationResult, load_result
from trainhouse.workers.evaluation.sample_results import load_sample_results

OUT: Final = "TRAINHOUSE_EVALUATION_OUT"
"""Folder into which the command writes `result.json`, and `samples.parquet` where it has results by sample."""


def run_command(spec: EvaluationSpec, version: str, out: Path, result_name: str) -> EvaluationResult:
    """Runs the command with what it needs in its environment, blocks until it ends, and reads its result. Raises InvalidEvaluationError."""
    given = {
        OUT: str(out),
        "TRAINHOUSE_EVALUATION_SUITE": spec.suite,
        "TRAINHOUSE_EVALUATION_MODEL": spec.model,
        "TRAINHOUSE_EVALUATION_VERSION": version,
        "TRAINHOUSE_EVALUATION_SEED": str(spec.seed),
        "TRAINHOUSE_EVALUATION_BATCH_SIZE": str(spec.batch_size),
    }
    (out / result_name).unlink(missing_ok=True)
    try:
        done = subprocess.run(spec.command, env=os.environ | given, check=False)
    except OSError as error:
        raise InvalidEvaluationError(f"the command {spec.command[0]!r} cannot be started: {error.strerror}; correct `command`") from error
    if done.returncode:
        raise InvalidEvaluationError(f"the command {spec.command[0]!r} ended with code {done.returncode}; its output has the reason")
    result = load_result(out / result_name)
    for name, asked in (("suite", spec.suite), ("version", version), ("seed", spec.seed), ("batch_size", spec.batch_size)):
        if getattr(result, name) != asked:
            raise InvalidEvaluationError(
                f"the command's result has {name} {getattr(result, name)!r}, not {asked!r}: write the one asked for"
            )
    if result.by_sample is not None:
        load_sample_results(out / result_name, result)
    return result
