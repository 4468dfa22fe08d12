"""Preparation of a dataset as a job: check, clean, split, normalise, tokenise and shuffle the rows of a version, into an output."""
