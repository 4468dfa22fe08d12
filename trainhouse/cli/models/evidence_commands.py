"""`trainhouse models evaluate` and `compare`: evidence for a version, made from its files and recorded by the registry.

Holds: what is recorded is in the store before; what the registry has already is not recorded again. They work over Kafka and over a
gateway; either way they read and write the object store themselves.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Optional

import typer

from trainhouse.cli.models.model_options import Project, models_group
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.cli.shared.options import DataDir, Json
from trainhouse.events.model.default_project import DEFAULT_PROJECT

if TYPE_CHECKING:
    from trainhouse.client.models.registry_access import KnownModel, KnownVersion, RegistryAccess
    from trainhouse.events import ModelCompared, ModelEvaluated, ModelGate
    from trainhouse.scheduler.core.registry.registry_state import EvaluationJob
    from trainhouse.workers.evaluation.paired_results import Comparison
    from trainhouse.workers.evaluation.result import EvaluationResult

_RESULT: Final = "result.json"
Version = Annotated[
    str,
    typer.Argument(metavar="NAME@V", help="NAME@3, NAME@1.2.0, NAME@staging or NAME@champion; or PROJECT/NAME@….", show_default=False),
]
Timeout = Annotated[float, typer.Option("--timeout", min=1, help="Seconds to wait for the registry's answer.")]


def register(app: typer.Typer) -> None:
    """Adds the commands to the group of models, which is there already."""
    group = models_group(app)
    group.command("evaluate")(evaluate)
    group.command("compare")(compare)


def evaluate(
    version: Version,
    spec: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--spec", metavar="FILE", help="The evaluation as YAML, which runs here.", show_default=False),
    ] = None,
    submit: Annotated[bool, typer.Option("--submit", help="Submit the jobs that the gate's `evaluate` describes, instead.")] = False,
    suite: Annotated[Optional[str], typer.Option(help="With --submit: this evaluation of the gate alone.")] = None,  # noqa: UP045
    data: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="NAME@VERSION", help="Version of a dataset whose split the file names.", show_default=False),
    ] = None,
    out: Annotated[Optional[Path], typer.Option(help="Folder for result.json and samples.parquet. Default: none is kept here.")] = None,  # noqa: UP045
    kind: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--format", metavar="FORMAT", help="Of the files: safetensors, hf, dcp or torch. Default: safetensors."),
    ] = None,
    project: Project = DEFAULT_PROJECT,
    timeout: Timeout = 60.0,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Evaluate a version here, or by jobs; store the result, and record it as evidence, where it counts once.

    \b
    trainhouse models evaluate digits@2 --spec evaluation.yaml --data digits@1.0.0
    trainhouse models evaluate digits@2 --submit
    trainhouse models evaluate resnet@staging --spec speed.yaml --format torch

    With --spec it runs on this machine, with the version fetched into a temporary folder. The program of the file is found from this
    folder; its `model` is a path below the version's files; without one, their folder. With --submit, the gate names all.
    """
    from trainhouse.cli.shared import output

    with _explained():
        access = _access()
        model, chosen = _chosen(access, version, project)
        if submit:
            _check_of_gate({"--spec": spec, "--data": data, "--out": out, "--format": kind})
            _submit(access, model, chosen, suite, timeout, json)
            return
        if spec is None or suite is not None:
            raise CliError("name the evaluation, --spec FILE, or have the gate's run as jobs: --submit (perhaps with --suite)", Exit.USAGE)
        with _folder(out) as folder:
            result = _run(model, chosen, _Run(spec, data, kind or "safetensors"), folder)
            _store(model.project, result, folder)
        is_new = _record_result(access, model, chosen, result, timeout)
    what = "recorded" if is_new else "was recorded before"
    if json:
        output.json_lines([_row(model, chosen) | {"evaluation_id": _evaluation_id(result), "new": is_new, **_figures(result)}])
        return
    output.table(("metric", "value", "low", "high"), _figure_rows(result), right=("value", "low", "high"))
    print(f"{model.key}@{chosen.version} ({chosen.semver}): result {result.sha256[:12]}… of suite {result.suite} {what}")


def compare(
    version: Version,
    other: Annotated[
        str, typer.Option("--with", metavar="champion|V", help="Version of the same model: champion, its ordinal or semver.")
    ] = "champion",
    suite: Annotated[Optional[str], typer.Option(help="Only this suite. Default: all that both have results of.")] = None,  # noqa: UP045
    margin: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="METRIC=LOSS", help="Loss that is no loss; may be repeated. Default: the gate's."),
    ] = None,
    alpha: Annotated[float, typer.Option(help="Probability of a false claim among all metrics and groups.")] = 0.05,
    least_samples: Annotated[int, typer.Option(help="Samples below which there is no verdict.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    project: Project = DEFAULT_PROJECT,
    timeout: Timeout = 60.0,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Compare a version with the champion on the same samples, and record the verdicts. Exits with 1 where one does not pass.

    \b
    trainhouse models compare digits@2
    trainhouse models compare digits@2 --with 1 --margin accuracy=0.005

    It takes the newest stored results of both by suite and data; `models evaluate` makes them.
    """
    from trainhouse.cli.shared import output

    with _explained():
        from trainhouse.workers.evaluation.__main__ import margins_of
        from trainhouse.workers.evaluation.comparison import ComparisonLimits

        access = _access()
        model, chosen = _chosen(access, version, project)
        against = model.find(other)
        limits = ComparisonLimits(alpha=alpha, least_samples=least_samples, seed=seed)
        found = [
            _compared(model.project, pair, margins_of(margin or []), model.gate, limits) for pair in _pairs(model, chosen, against, suite)
        ]
        is_new = [_record_comparison(access, model, chosen, pair, each, timeout) for pair, each in found]
    for (_, each), new in zip(found, is_new, strict=True):
        if json:
            output.json_lines([_row(model, chosen) | {"against": against.version, "new": new, **each.model_dump(mode="json")}])
        else:
            _print_comparison(model, chosen, against, each, new)
    if not all(_passes(each) for _, each in found):
        raise typer.Exit(Exit.FAILED)


@dataclass(frozen=True)
class _Run:
    """An evaluation to run. `data`: version of a dataset; `kind`: format of the version's files."""

    spec: Path
    data: str | None
    kind: str


_Pair = tuple["ModelEvaluated", "ModelEvaluated"]


def _submit(
    access: "RegistryAccess", model: "KnownModel", version: "KnownVersion", suite: str | None, timeout_s: float, json: bool
) -> None:
    """Has the registry submit the jobs that evaluate a version; prints each of them, and of each other suite why there is none. Raises
    ChangeRefusedError where there is none at all."""
    import getpass

    from trainhouse.cli.shared import output
    from trainhouse.client import ChangeRefusedError
    from trainhouse.events import ModelEvaluationRequested

    about = {"project": model.project, "name": model.name, "version": version.version, "user": getpass.getuser()}
    named = list(dict.fromkeys(each.suite for each in model.gate.evaluate))
    # One request a suite: the registry's answer to one of several would not say why a suite has no job.
    suites: list[str | None] = [suite] if suite is not None or not named else [*named]
    refused = dict[str | None, ChangeRefusedError]()
    for each in suites:
        try:
            access.record(ModelEvaluationRequested.model_validate(about | {"suite": each}), timeout_s)
        except ChangeRefusedError as error:
            refused[each] = error
    if len(refused) == len(suites):
        raise next(iter(refused.values())) if len(suites) == 1 else ChangeRefusedError("; ".join(str(each) for each in refused.values()))
    last = {each.suite: each for each in access.model(model.project, model.name).find(str(version.version)).jobs}
    begun = [last[each] for each in suites if each is not None and each not in refused and each in last]
    if json:
        output.json_lines(_row(model, version) | each.as_row() | {"new": True} for each in begun)
        output.json_lines(_row(model, version) | {"suite": each, "new": False, "reason": str(why)} for each, why in refused.items())
        return
    for job in begun:
        print(output.printable(f"{model.key}@{version.version}: {job_words(job)}"))
    for each, why in refused.items():
        print(output.printable(f"{model.key}@{version.version}: no job was submitted by suite {each}: {why}"))


def job_words(job: "EvaluationJob") -> str:
    """Describes how a job that evaluates a version stands, right after it was asked for."""
    if job.is_running:
        return f"job {job.job_id} evaluates it by suite {job.suite}"
    outcome = f"result {job.evaluation_id}" if job.evaluation_id else f"no result: {job.reason}"
    return f"job {job.job_id} by suite {job.suite} was submitted, and has ended already: {outcome}"


def _check_of_gate(given: dict[str, Any]) -> None:
    """Raises CliError where an option was given that only counts for an evaluation that runs here."""
    if named := [option for option, value in given.items() if value is not None]:
        raise CliError(f"--submit takes all from the gate: leave {', '.join(named)} away; nothing was submitted", Exit.USAGE)


def _access() -> "RegistryAccess":
    from trainhouse.client import TrainhouseClient
    from trainhouse.client.models.registry_access import registry_access

    return registry_access(TrainhouseClient.from_settings())


def _chosen(access: "RegistryAccess", text: str, project: str) -> "tuple[KnownModel, KnownVersion]":
    from trainhouse.checkpointing.models.named_version import parse_reference

    named = parse_reference(text, project)
    model = access.model(named.project, named.name)
    return model, model.find(named.selector)


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """A folder for the result: the one that is named, or one that is gone afterwards."""
    import tempfile

    if out is None:
        with tempfile.TemporaryDirectory(prefix="trainhouse-evaluation-") as made:
            yield Path(made)
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CliError(f"{out} is there, and not empty; name another folder", Exit.USAGE)
    out.mkdir(parents=True, exist_ok=True)
    yield out.absolute()


def _run(model: "KnownModel", version: "KnownVersion", run: _Run, folder: Path) -> "EvaluationResult":
    """Fetches the version, and runs the program in a process of its own: its seeds, threads and algorithms are the process's."""
    import os
    import subprocess
    import tempfile

    from trainhouse.checkpointing.exchange.export import Format
    from trainhouse.checkpointing.models.fetch import fetch
    from trainhouse.checkpointing.models.named_version import NamedVersion
    from trainhouse.checkpointing.models.stage_chain import StagedVersion
    from trainhouse.cli.data.dataset_access import object_store
    from trainhouse.workers.evaluation.result import RESULT_NAME, load_result

    if run.kind not in list(Format):
        raise CliError(f"--format {run.kind[:100]!r}: write one of {', '.join(Format)}", Exit.USAGE)
    environment = os.environ | _dataset(run.data, model.project)
    with tempfile.TemporaryDirectory(prefix="trainhouse-version-") as made:
        files = Path(made) / "version"
        text = _description(run, files, version.content)
        staged = StagedVersion(version=version.version, semver=version.semver, content=version.content)
        fetch(object_store(), NamedVersion(model.project, model.name, staged), Format(run.kind), files)
        description = Path(made) / "evaluation.yaml"
        description.write_text(text, "utf-8")
        words = [sys.executable, "-m", "trainhouse.workers.evaluation", "run", str(description), "--out", str(folder), "--no-artifact"]
        done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout)
        raise CliError(f"the evaluation ended with code {done.returncode}; the lines above say why, and nothing was recorded", Exit.FAILED)
    result = load_result(folder / RESULT_NAME)
    # A command may write the same in other bytes, and a result is named by its own.
    (folder / RESULT_NAME).write_bytes(result.canonical_json())
    return result


def _description(run: _Run, files: Path, content: str) -> str:
    """The description with the version's files and hash. Raises CliError, InvalidEvaluationError."""
    import tempfile

    import yaml

    from trainhouse.workers.evaluation.evaluation_spec import read_spec

    try:
        given = yaml.safe_load(run.spec.read_text("utf-8"))
    except OSError as error:
        raise CliError(f"{run.spec} cannot be read: {error.strerror}", Exit.USAGE) from error
    except (ValueError, yaml.YAMLError) as error:
        raise CliError(f"{run.spec} is no YAML: {error}", Exit.USAGE) from error
    if not isinstance(given, dict):
        raise CliError(f"{run.spec} describes no evaluation: write keys such as suite, kind, program, split", Exit.USAGE)
    if given.get("version", content) != content:
        raise CliError(f"{run.spec} names version {given['version']}, and this is {content}: leave `version` out", Exit.USAGE)
    below = Path(str(given.get("model", ".")))
    if below.is_absolute() or ".." in below.parts:
        raise CliError(f"{run.spec}: model {str(below)!r} is a path below the version's files, such as model.safetensors", Exit.USAGE)
    whole = given | {"model": str(files / below), "version": content}
    if isinstance(whole.get("folder"), str):
        whole["folder"] = str(Path(whole["folder"]).absolute())
    text = str(yaml.safe_dump(whole, sort_keys=False, allow_unicode=True))
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        spec = read_spec(Path(file.name))
    if spec.split is not None and run.data is None:
        raise CliError(f"{run.spec} reads split {spec.split}: name the version of the dataset, --data NAME@VERSION", Exit.USAGE)
    return text


def _dataset(data: str | None, project: str) -> dict[str, str]:
    """Variables of a program that reads a version of a dataset outside of a job."""
    from trainhouse.cli.data.dataset_access import known_version
    from trainhouse.workers.launcher import ports

    if data is None:
        return {}
    # A version that is named by hash needs no look-up, which a gateway does not give.
    name = data if "@sha256:" in data else str(known_version(data).version.name)
    return {ports.DATASET: name, ports.PROJECT: project}


def _store(project: str, result: "EvaluationResult", folder: Path) -> None:
    """Stores the result, where it is kept for as long as the version's content is there."""
    from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore, files_below
    from trainhouse.cli.data.dataset_access import object_store
    from trainhouse.events.model.artifact import ArtifactManifest
    from trainhouse.workers.evaluation.recorded_results import KIND, keep_result

    manifest = ArtifactManifest.of(KIND, ArtifactStore.described(files_below(folder)))
    keep_result(object_store(), project, folder, manifest, result.version)


def _record_result(
    access: "RegistryAccess", model: "KnownModel", version: "KnownVersion", result: "EvaluationResult", timeout_s: float
) -> bool:
    """Records a result; returns whether it is new. Raises CliError."""
    import getpass

    from trainhouse.client import ChangeRefusedError
    from trainhouse.events.runtime.clock import wall_ms
    from trainhouse.workers.evaluation.result_event import evaluation_event

    if _has(version, result):
        return False
    try:
        access.record(evaluation_event(result, model.project, model.name, wall_ms(), getpass.getuser()), timeout_s)
    except ChangeRefusedError:
        # Another process may have recorded it meanwhile.
        if _has(access.model(model.project, model.name).find(str(version.version)), result):
            return False
        raise
    return True


def _has(version: "KnownVersion", result: "EvaluationResult") -> bool:
    return any(each.document == result.sha256 for each in version.evaluations)


def _pairs(model: "KnownModel", version: "KnownVersion", against: "KnownVersion", suite: str | None) -> list[_Pair]:
    """The results of both that the gate looks at, by suite and data. Raises CliError where there are none."""
    if against.version == version.version:
        raise CliError(f"{model.key}@{version.version} is compared with itself; name another version: --with V", Exit.USAGE)
    found = list[_Pair]()
    first, second = (_counting(of) for of in (version, against))
    for key in sorted(first.keys() & second.keys(), key=lambda key: tuple(part or "" for part in key)):
        if suite in (None, key[0]):
            found.append((first[key], second[key]))
    if not found:
        what = "a suite" if suite is None else f"suite {suite}"
        raise CliError(
            f"{model.key}@{version.version} and @{against.version} have no results of {what} on the same data: run `trainhouse models "
            "evaluate` for each of them first",
            Exit.NOT_FOUND,
        )
    return found


def _counting(version: "KnownVersion") -> "dict[tuple[str, str, str | None], ModelEvaluated]":
    """The result of each suite and data that the gate looks at."""
    from trainhouse.scheduler.core.registry.gate_conditions import newest_of

    by_key: dict[tuple[str, str, str | None], list[ModelEvaluated]] = {}
    for each in version.evaluations:
        by_key.setdefault((each.suite, each.dataset, each.split), []).append(each)
    return {key: found for key, alike in by_key.items() if (found := newest_of(alike)) is not None}


def _compared(project: str, pair: _Pair, margins: dict[str, float], gate: "ModelGate", limits: Any) -> "tuple[_Pair, Comparison]":
    """The comparison of two stored results, with the gate's margins where none is named."""
    from trainhouse.cli.data.dataset_access import object_store
    from trainhouse.workers.evaluation.paired_results import compare_results
    from trainhouse.workers.evaluation.recorded_results import stored_result

    objects = object_store()
    first, second = (stored_result(objects, project, each.document) for each in pair)
    common = first.result.metrics.keys() & second.result.metrics.keys()
    of_gate = {
        name: metric.margin
        for each in gate.suites
        if each.suite == pair[0].suite
        for name, metric in each.metrics.items()
        if metric.margin is not None and name in common
    }
    return pair, compare_results(first, second, of_gate | margins, limits)


def _record_comparison(
    access: "RegistryAccess", model: "KnownModel", version: "KnownVersion", pair: _Pair, found: "Comparison", timeout_s: float
) -> bool:
    """Records a comparison; returns whether it is new: one that says the same voids no approvals again."""
    import getpass

    from trainhouse.events.runtime.clock import wall_ms
    from trainhouse.workers.evaluation.recorded_results import comparison_event

    ids = pair[0].evaluation_id, pair[1].evaluation_id
    request = comparison_event(found, model.project, model.name, ids, wall_ms(), getpass.getuser())
    if any(_verdicts_of(each) == _verdicts_of(request) for each in version.comparisons):
        return False
    access.record(request, timeout_s)
    return True


def _verdicts_of(compared: "ModelCompared") -> Any:
    return compared.model_dump(include={"content", "against", "evaluation_id", "against_evaluation_id", "metrics"})


def _print_comparison(model: "KnownModel", version: "KnownVersion", against: "KnownVersion", found: "Comparison", is_new: bool) -> None:
    from trainhouse.cli.shared import output

    what = output.printable(f"suite {found.suite}" + (f", {found.split}" if found.split else ""))
    print(f"{model.key}@{version.version} with @{against.version}, {what}")
    rows = [
        (
            f"{each.metric} {each.group}".strip(),
            f"{each.first:.4g}",
            f"{each.second:.4g}",
            f"{each.difference:+.3g}" if each.low is None or each.high is None else f"{each.low:+.3g} to {each.high:+.3g}",
            "" if each.p_adjusted is None else f"{each.p_adjusted:.2g}",
            each.verdict.value,
        )
        for each in found.entries
    ]
    columns = ("metric", f"@{version.version}", f"@{against.version}", "difference", "p", "verdict")
    output.table(columns, rows, right=(columns[1], columns[2], "p"), drop=("p",), cut="metric")
    if found.not_compared:
        print(output.printable(f"not compared, without values by sample: {', '.join(found.not_compared)}"))
    groups = "" if found.groups_verdict is None else f"; groups: {found.groups_verdict.value}"
    print(f"verdict: {found.verdict.value}{groups}; {'recorded' if is_new else 'was recorded before'}")


def _passes(found: "Comparison") -> bool:
    return found.verdict.passes and (found.groups_verdict is None or found.groups_verdict.passes)


def _row(model: "KnownModel", version: "KnownVersion") -> dict[str, Any]:
    return {"project": model.project, "model": model.name, "version": version.version, "semver": version.semver, "content": version.content}


def _evaluation_id(result: "EvaluationResult") -> str:
    from trainhouse.workers.evaluation.result_event import evaluation_id_of

    return evaluation_id_of(result)


def _figures(result: "EvaluationResult") -> dict[str, Any]:
    about = result.model_dump(mode="json", include={"suite", "dataset", "split", "device_kind", "samples", "undefined"})
    figures = {name: {"value": each.value, "low": each.low, "high": each.high} for name, each in result.metrics.items()}
    return about | {"document": result.sha256, "metrics": figures}


def _figure_rows(result: "EvaluationResult") -> list[tuple[str, ...]]:
    def shown(value: float | None) -> str:
        return "" if value is None else f"{value:.6g}"

    return [(name, shown(each.value), shown(each.low), shown(each.high)) for name, each in sorted(result.metrics.items())]


@contextmanager
def _explained() -> Iterator[None]:
    """Errors of models, of the store and of evaluations as one sentence."""
    from trainhouse.checkpointing.errors import CheckpointError, InvalidStateError, NoModelError, ObjectStoreUnavailableError
    from trainhouse.client import ChangeRefusedError
    from trainhouse.client.models.registry_access import UnknownModelError
    from trainhouse.events.model.artifact import ArtifactError

    try:
        from trainhouse.workers.evaluation.errors import InvalidEvaluationError, UnpairedResultsError
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error
    try:
        yield
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error
    except (NoModelError, UnknownModelError) as error:
        raise CliError(str(error), Exit.NOT_FOUND) from error
    except ChangeRefusedError as error:
        raise CliError(str(error), Exit.REJECTED) from error
    except ObjectStoreUnavailableError as error:
        raise CliError(str(error), Exit.UNAVAILABLE) from error
    except (InvalidStateError, ArtifactError) as error:
        raise CliError(str(error), Exit.USAGE) from error
    except (InvalidEvaluationError, UnpairedResultsError, CheckpointError) as error:
        raise CliError(f"{error}\nnothing was recorded", Exit.FAILED) from error


def _not_installed(error: ModuleNotFoundError) -> CliError:
    return CliError(f"{error.name} is not installed here: pip install 'trainhouse[evaluation]'", Exit.USAGE)
