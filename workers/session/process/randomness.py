"""Seeds every generator that training draws from; their states are taken and put back by `checkpointing.state.rng`."""

import random

import numpy as np
import torch


def seed_all(seed: int, rank: int) -> None:
    """Seed all generators of this rank. torch gets the job's seed on every rank (so that models begin alike), the others rank by rank."""
    random.seed(f"{seed}/{rank}")
    np.random.seed((seed * 1_000_003 + rank) % 2**32)
    torch.manual_seed(seed)
