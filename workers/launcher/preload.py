"""Imports of the warm process: all that a first training step needs, so that nothing is left to import after the fork.

Holds: imports only; no device is opened, no client made. (Measured: after these, a first DDP step with AdamW imports nothing more.)
"""

import gc
import importlib

MODULES = (
    "torch",
    "numpy",
    "numpy.random",
    "torch.distributed",
    "torch.nn.parallel",
    "torch.optim",
    "torch.utils.data",
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "torch.distributed.checkpoint.state_dict",
    "multiprocessing.util",
    "trainhouse.workers.session",
    "trainhouse.checkpointing.checkpointer",
    "torch.utils.serialization",
    "boto3.s3.inject",
    "encodings.idna",
)


def preload() -> None:
    """Import them all; raises what an import raises. Seconds."""
    # What a module defines stays: looks for cycles among it are a sixth of the time.
    gc.disable()
    try:
        for name in MODULES:
            importlib.import_module(name)
    finally:
        gc.enable()
