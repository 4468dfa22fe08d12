"""Where Trainhouse runs: `local/` is the whole stack on one machine, from packages alone."""
