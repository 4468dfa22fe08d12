"""Drift between versions of a dataset, from the distributions beside their manifests.

Holds: pure; equal manifests give equal verdicts. No sample is read.
"""
