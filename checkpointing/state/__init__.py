"""Training state as tensors: its tree, how ranks share it, how it is written and read again."""
