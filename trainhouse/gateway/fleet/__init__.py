"""The fleet's alerts by cause, and its figures now and over time, for the pages and everybody else."""
