"""Submissions in few words: what spec they mean, and what is refused with its place and what to write instead."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from pydantic import ValidationError

from trainhouse.events import JobSpec
from trainhouse.gateway.aliases.few_words import PlainJob, TrainingRun

COMMAND = ["python", "train.py", "--lr", "{lr}"]
A, B = "a" * 64, "b" * 64


def test_a_training_run_is_a_spec() -> None:
    run = TrainingRun.model_validate(
        {
            "command": COMMAND,
            "name": "gpt",
            "project": "vision",
            "model_config": {"layers": 12, "attention": {"heads": 8, "windows": [128, 256]}},
            "code_ref": f"s3://code/gpt.tar@sha256:{A}",
            "dataset_ref": "corpus@1.2.0",
            "hyperparameters": {"lr": 0.1},
            "resources": {"gpus": 8, "gpu_type": "H100", "memory_gib_per_gpu": 64},
        }
    )
    assert run.spec == JobSpec.model_validate(
        {
            "name": "gpt",
            "project": "vision",
            "runtime": {"command": COMMAND},
            "code": {"uri": "s3://code/gpt.tar", "sha256": A},
            "data": {"dataset": "corpus@1.2.0"},
            "gang": 8,
            "resources": {"device_type": "H100", "memory_gib_per_device": 64},
            "hyperparameters": {
                "model.layers": 12,
                "model.attention.heads": 8,
                "model.attention.windows.0": 128,
                "model.attention.windows.1": 256,
                "lr": 0.1,
            },
        }
    )


def test_a_job_in_few_words_is_a_spec() -> None:
    job = PlainJob.model_validate(
        {
            "command": COMMAND,
            "codeRef": f"s3://code/gpt.tar@sha256:{A}",
            "dataSnapshot": f"s3://data/corpus@sha256:{B}",
            "resources": {"gpus": 2, "gpuType": "cpu", "cpusPerGpu": 4},
            "checkpointPolicy": {"everySteps": 100, "keepLast": 5},
            "hyperparameters": {"lr": 0.1},
        }
    )
    assert job.spec == JobSpec.model_validate(
        {
            "runtime": {"command": COMMAND},
            "code": {"uri": "s3://code/gpt.tar", "sha256": A},
            "data": {"uri": "s3://data/corpus", "sha256": B},
            "gang": 2,
            "resources": {"device_type": "cpu", "cpus_per_device": 4},
            "checkpoint": {"every_steps": 100, "keep_last": 5},
            "hyperparameters": {"lr": 0.1},
        }
    )


def test_what_is_left_out_is_the_specs_default() -> None:
    expected = JobSpec.model_validate({"runtime": {"command": ["true"]}})
    for form in (TrainingRun, PlainJob):
        assert form.model_validate({"command": ["true"]}).spec == expected


@pytest.mark.parametrize(
    ("form", "body", "words"),
    [
        (TrainingRun, {}, "command"),
        (TrainingRun, {"command": []}, "command"),
        (TrainingRun, {"resources": {"gpus": 0}}, "resources.gpus"),
        (TrainingRun, {"resources": {"devices": 2}}, "resources.devices"),
        (TrainingRun, {"epochs": 3}, "epochs"),
        (TrainingRun, {"code_ref": "s3://code/gpt.tar"}, "ADDRESS@sha256:HASH"),
        (TrainingRun, {"dataset_ref": "s3://data/corpus"}, "has no hash"),
        (TrainingRun, {"dataset_ref": "corpus"}, "names no version of a dataset"),
        (TrainingRun, {"model_config": {"lr": 1}, "hyperparameters": {"model.lr": 2}}, "both say model.lr"),
        (TrainingRun, {"model_config": {f"k{n}": n for n in range(600)}}, "512"),
        (TrainingRun, {"model_config": {"k" * 200: 1}}, "128 characters"),
        (PlainJob, {"checkpointPolicy": {"everySteps": 0}}, "checkpointPolicy.everySteps"),
        (PlainJob, {"code_ref": "x"}, "code_ref"),
        (PlainJob, {"resources": {"gpus": 3, "gpuType": ""}}, "resources.gpuType"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(form: type[TrainingRun | PlainJob], body: dict[str, Any], words: str) -> None:
    whole = body if not body or "command" in body else {"command": COMMAND, **body}
    with pytest.raises(ValidationError) as caught:
        form.model_validate(whole)
    said = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in caught.value.errors())
    assert words in said, said


def test_a_long_list_under_a_long_name_takes_no_memory() -> None:
    for key, length in (("k" * 100_000, 100_000), ("k", 900_000)):
        tracemalloc.start()
        with pytest.raises(ValidationError):
            TrainingRun.model_validate({"command": COMMAND, "model_config": {key: [0] * length}})
        _, most_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most_bytes < 64 * 1024 * 1024
