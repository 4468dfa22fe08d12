"""Definitions without a caller in the code, and names of speech, each with its reason.

`LIBRARY_HOOKS` are patterns of names that libraries call.
"""

from typing import Final

LIBRARY_HOOKS: Final = (
    "_",  # registered by a decorator (functools.singledispatch)
    "__getattr__",  # modules that import on first use
    "visit_*",  # ast.NodeVisitor
    "on_*",  # textual: messages
    "action_*",  # textual: key bindings
    "check_action",  # textual
    "_repr_html_",  # IPython
    "log_*",  # lightning: a logger's
    "readinto",  # io.RawIOBase
    "handle_ping",  # uvicorn: its protocol of websockets
    "save_dir",  # lightning: a logger's
)
LIBRARY_DECORATORS: Final = (
    "@*.command*",
    "@*.callback*",
    "@*.get*",
    "@*.post*",
    "@*.put*",
    "@*.patch*",
    "@*.delete*",
    "@*.api_route*",
    "@*.websocket*",
    "@*.middleware*",
    "@*.exception_handler*",
    "@*.agent*",
    "@*.timer*",
    "@*.task*",
    "@*validator*",
    "@*serializer*",
    "@computed_field",
    "@override",
)

_DCP = "torch.distributed.checkpoint calls it"
_PICKLER = "pickle.Pickler calls it"
_UNPICKLER = "pickle.Unpickler calls it"
UNUSED: Final[dict[str, str]] = {
    "set_up_storage_writer": _DCP,
    "load_bytes": _DCP,
    "persistent_id": _PICKLER,
    "reducer_override": _PICKLER,
    "set_up_storage_reader": _DCP,
    "prepare_local_plan": _DCP,
    "prepare_global_plan": _DCP,
    "read_data": _DCP,
    "validate_checkpoint_id": _DCP,
    "seekable": "io.RawIOBase: botocore asks it",
    "make_restarts": "supervisord loads it by its name in the configuration",
    "persistent_load": _UNPICKLER,
    "_proc_sparse": "tarfile calls it",
    "warm_ready": "state of the warm process, which tests of its death wait for",
    "warm_pid": "state of the warm process, which tests of its death kill",
    "settings_customise_sources": "pydantic-settings calls it",
    "_read_msg": "aiokafka's reader of record batches calls it",
    "iterate": "Faust calls it",
    "format_commands": "click calls it",
    "loads_key": "Faust calls it",
    "loads_value": "Faust calls it",
    "infer_relative_search_space": "Optuna calls it",
    "_find_sample_id": "Optuna calls it",
    "save_if_best": "training programs call it (docs/howto/training-program.md)",
}

_OPTUNA: Final = "Optuna's word for what a sampler knows (`Study.tell`)"
# By (path, name).
SPEECH_NAMES: Final[dict[tuple[str, str], str]] = {
    ("checkpointing/stores/s3.py", "tell"): "io.IOBase: botocore asks it",
    ("events/model/trace_state.py", "told"): "field of a record of the exporter's topic",
    ("scheduler/core/explain/node_reasons.py", "says"): "key of `trainhouse why --nodes --json`",
    ("events/model/study.py", "told"): _OPTUNA,
    ("events/model/study_decisions.py", "told"): _OPTUNA,
    ("scheduler/core/studies/study_state.py", "told"): _OPTUNA,
    ("scheduler/core/studies/study_state.py", "told_trial"): _OPTUNA,
    ("scheduler/core/studies/told.py", "ToldTrial"): _OPTUNA,
    ("scheduler/stream/studies/optuna_sampler.py", "told"): _OPTUNA,
    ("trainhouse/gateway/routes/identity.py", "WhoAmI"): "schema of the gateway's OpenAPI document",
}
