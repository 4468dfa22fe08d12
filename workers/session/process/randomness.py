"""Seeds every generator that training draws from; their states are taken and put back by `checkpointing.state.rng`."""

import random

import numpy as np
import torch


def seed_all(seed: int, data_rank: int) -> None:
    """Seed all generators of this rank. torch gets the job's seed on every rank (so that models begin alike), the others by data share."""
    random.seed(f"{seed}/{data_rank}")
    np.random.seed((seed * 1_000_003 + data_rank) % 2**32)
    torch.manual_seed(seed)
