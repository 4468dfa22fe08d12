"""Studies as a pure machine: trials, their values, rules of early stopping and the best of them."""
