"""One evaluation, from its description to `result.json` and `samples.parquet` in a folder.

Holds: fixed seed, batch size, order of samples and number of threads, and deterministic algorithms, so that a rerun on the same kind of
device gives the same bytes; every sample of the split is evaluated once, or there is no result.
"""

import hashlib
import importlib
import platform
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.nn import functional

from trainhouse.workers import Session
from trainhouse.workers.data import open_folder
from trainhouse.workers.data.sharded_dataset import KEY
from trainhouse.workers.evaluation.errors import InvalidEvaluationError
from trainhouse.workers.evaluation.evaluation_spec import EvaluationSpec
from trainhouse.workers.evaluation.result import RESULT_NAME, EvaluationResult, Metric
from trainhouse.workers.evaluation.sample_results import FILE_NAME, SampleResults
from trainhouse.workers.evaluation.suites.accuracy_suites import classification, language_model, regression
from trainhouse.workers.evaluation.suites.command_suite import run_command
from trainhouse.workers.evaluation.suites.latency import Calls, measured
from trainhouse.workers.evaluation.suites.scored_samples import Intervals, Scored, grouping_of, metrics_of

_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Program:
    """The user's functions; `collate` makes a batch of inputs, and `code` is the hash of the module's file."""

    load: Callable[[Path, torch.device], Any]
    decode: Callable[[dict[str, Any]], dict[str, Any]]
    collate: Callable[[list[Any]], Any]
    code: str


@dataclass(frozen=True)
class _Decode:
    """The user's function, with the sample's key added; worker processes take it along."""

    function: Callable[[dict[str, Any]], dict[str, Any]]

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        return {KEY: sample[KEY], **self.function(sample)}


def run_evaluation(spec: EvaluationSpec, session: Session, out: Path) -> EvaluationResult:
    """Runs it on this rank's device and writes its files. Blocks. Raises InvalidEvaluationError, InvalidDataError, DamagedShardError."""
    if session.world_size != 1:
        raise InvalidEvaluationError(f"an evaluation runs on one rank, not on {session.world_size}: write gang: 1 in the job's spec")
    out.mkdir(parents=True, exist_ok=True)
    version = spec.version or files_hash(Path(spec.model))
    if spec.kind == "command":
        return run_command(spec, version, out, RESULT_NAME)
    be_repeatable(spec.seed)
    began = time.perf_counter()
    program = load_program(spec.program or "")
    model = program.load(Path(spec.model), session.device)
    if isinstance(model, torch.nn.Module):
        model.eval()
    rest = _Rest(spec, session, program, model, version)
    with torch.inference_mode():
        result = rest.latency(began) if spec.kind == "latency" else rest.accuracy(out)
    (out / RESULT_NAME).write_bytes(result.canonical_json())
    return result


class _Rest:
    """Part of an evaluation that follows once its model is loaded."""

    def __init__(self, spec: EvaluationSpec, session: Session, program: Program, model: Any, version: str) -> None:
        self._spec, self._session, self._program, self._model, self._version = spec, session, program, model, version
        dataset = spec.split if spec.folder is None else open_folder(Path(spec.folder))
        assert dataset is not None
        self._loader = session.loader(
            dataset, batch=spec.batch_size, shuffle=False, last="pad", decode=_Decode(program.decode), collate=list, max_bad=0.0
        )
        folder_identity = "" if isinstance(dataset, str) else f"folder@{dataset.identity}"
        data = session.data
        self._dataset = folder_identity or (data.dataset if data is not None and data.dataset else "")

    def accuracy(self, out: Path) -> EvaluationResult:
        """Predicts every sample, and computes the suite's metrics."""
        spec = self._spec
        keys, groups = list[str](), {name: list[str]() for name in spec.groups}
        parts = list[tuple[np.ndarray, ...]]()
        for samples in self._batches():
            predicted = self._predicted(samples)
            parts.append(predicted)
            keys += [sample[KEY] for sample in samples]
            for name, values in groups.items():
                values += [_group(sample, name) for sample in samples]
        columns = tuple(np.concatenate([part[n] for part in parts]) for n in range(len(parts[0])))
        scored = _scored(spec, columns, keys)
        how = Intervals(spec.seed, spec.confidence, spec.resamples)
        by_sample = SampleResults(keys, scored.columns, groups)
        content = by_sample.parquet()
        (out / FILE_NAME).write_bytes(content)
        return self._result(
            metrics_of(scored, how),
            samples=len(keys),
            undefined=dict(scored.undefined),
            groups={name: grouping_of(scored, values, name, spec.least_group, how) for name, values in groups.items()},
            by_sample=hashlib.sha256(content).hexdigest(),
            by_sample_bytes=len(content),
        )

    def latency(self, began: float) -> EvaluationResult:
        """Measures the first output since `began`, then calls at both batch sizes."""
        spec = self._spec
        inputs = [sample["input"] for sample in next(self._batches())]
        device = self._session.device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

        def batch(size: int) -> Any:
            return _on(self._program.collate([inputs[n % len(inputs)] for n in range(size)]), device)

        self._model(batch(1))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        load_s = time.perf_counter() - began
        sizes = tuple(sorted({1, spec.batch_size}))
        calls = Calls(self._model, batch, device, sizes, spec.repeats, spec.confidence)
        return self._result(measured(calls, load_s), samples=len(inputs), repeatable=False)

    def _batches(self) -> Iterator[list[dict[str, Any]]]:
        """Every sample once, in the order of the split. Raises InvalidEvaluationError where one cannot be read."""
        left = self._loader.order.samples
        while left > 0:
            samples = next(self._loader)
            if self._loader.bad:
                raise InvalidEvaluationError(
                    "a sample cannot be read or decoded (the line above names it), and an evaluation of the others is none of the split: "
                    "correct decode, or publish the version again"
                )
            yield samples[:left]
            left -= len(samples)

    def _predicted(self, samples: list[dict[str, Any]]) -> tuple[np.ndarray, ...]:
        """Columns of one batch, which is filled up to its size by its first sample: shapes, and so the bits, do not vary."""
        spec, device = self._spec, self._session.device
        inputs = [sample["input"] for sample in samples]
        filled = inputs + inputs[:1] * (spec.batch_size - len(inputs))
        if spec.kind == "language_model":
            return _token_losses(self._model, filled, device, len(inputs))
        outputs = self._model(_on(self._program.collate(filled), device))
        found = torch.as_tensor(outputs).detach().to("cpu", torch.float64).numpy()[: len(inputs)]
        if spec.kind == "regression" and found.ndim == 2 and found.shape[1] == 1:
            found = found[:, 0]
        kind = np.int64 if spec.kind == "classification" else np.float64
        return found, np.array([_target(sample) for sample in samples], kind)

    def _result(self, metrics: dict[str, Metric], **more: Any) -> EvaluationResult:
        spec = self._spec
        return EvaluationResult(
            suite=spec.suite,
            kind=spec.kind,
            version=self._version,
            dataset=self._dataset,
            split=spec.split or "",
            seed=spec.seed,
            batch_size=spec.batch_size,
            device_kind=device_kind(self._session.device),
            confidence=spec.confidence,
            metrics=metrics,
            code=self._program.code,
            **more,
        )


def load_program(name: str) -> Program:
    """Imports the user's module, from the working folder as well. Raises InvalidEvaluationError."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InvalidEvaluationError(f"program {name!r}: there is no module {error.name!r} here; send it with the job's code") from error
    for function in ("load", "decode"):
        if not callable(getattr(module, function, None)):
            raise InvalidEvaluationError(f"program {name!r} has no function {function}; docs/howto/evaluation.md shows one")
    file = Path(module.__file__ or "")
    code = hashlib.sha256(file.read_bytes()).hexdigest()
    return Program(module.load, module.decode, getattr(module, "collate", torch.utils.data.default_collate), code)


def be_repeatable(seed: int) -> None:
    """Seeds every generator of this process, and chooses algorithms whose sums have one order."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


def device_kind(device: torch.device) -> str:
    """Kind of a device: the instructions that a CPU's kernels use, or the name that CUDA gives."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def files_hash(path: Path) -> str:
    """Hash of a file, or of all files of a folder with their paths. Raises InvalidEvaluationError."""
    if path.is_file():
        return _file_hash(path)
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else []
    if not files:
        raise InvalidEvaluationError(f"model {str(path)!r}: there is no such file, and no folder with files; fetch the version there first")
    lines = (f"{_file_hash(each)}  {each.relative_to(path).as_posix()}\n" for each in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _scored(spec: EvaluationSpec, columns: tuple[np.ndarray, ...], keys: list[str]) -> Scored:
    if spec.kind == "classification":
        outputs, targets = columns
        return classification(outputs, targets, spec.outputs, keys)
    if spec.kind == "regression":
        return regression(columns[0], columns[1], keys)
    return language_model(columns[0], columns[1], columns[2], keys)


def _token_losses(model: Any, inputs: list[Any], device: torch.device, count: int) -> tuple[np.ndarray, ...]:
    """Loss, tokens and right tokens of each of the first `count` texts, lists of token ids; the model takes int64 of (batch, time) and
    returns logits of (batch, time, tokens). Short ones are filled up with 0 at their end."""
    texts = [torch.as_tensor(each, dtype=torch.int64) for each in inputs]
    padded = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True).to(device)
    lengths = torch.tensor([len(each) for each in texts], device=device)
    if int(lengths.max()) < 2:
        zeros = np.zeros(count)
        return zeros, zeros, zeros
    logits = torch.as_tensor(model(padded[:, :-1])).double()
    targets = padded[:, 1:]
    valid = torch.arange(targets.shape[1], device=device)[None, :] < (lengths - 1)[:, None]
    losses = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none") * valid
    right = (logits.argmax(-1) == targets) & valid
    return tuple(each[:count].double().cpu().numpy() for each in (losses.sum(1), valid.sum(1), right.sum(1)))


def _on(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {name: _on(each, device) for name, each in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(_on(each, device) for each in batch)
    return batch


def _target(sample: dict[str, Any]) -> Any:
    if "target" not in sample:
        raise InvalidEvaluationError(f"sample {sample[KEY]!r} has no 'target': let decode return one")
    return sample["target"]


def _group(sample: dict[str, Any], name: str) -> str:
    if sample.get(name) is None:
        raise InvalidEvaluationError(
            f"sample {sample[KEY]!r} has no {name!r}, which `groups` names: let decode return a text, or 'unknown'"
        )
    return str(sample[name])
