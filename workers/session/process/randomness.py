"""Seeds every generator that training draws from; their states are taken and put back by `checkpointing.state.rng`."""

import os
import random

import numpy as np
import torch


def seed_all(seed: int, data_rank: int) -> None:
    """Seed all generators of this rank. torch gets the job's seed on every rank (so that models begin alike), the others by data share."""
    random.seed(f"{seed}/{data_rank}")
    np.random.seed((seed * 1_000_003 + data_rank) % 2**32)
    torch.manual_seed(seed)


def be_deterministic() -> None:
    """Lets torch use deterministic algorithms alone; an operation that has none raises RuntimeError. Before the device's first use."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS needs for the same bits every time
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False  # it would choose algorithms by how fast they were this time
