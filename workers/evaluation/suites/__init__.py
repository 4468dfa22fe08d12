"""Suites: functions from a model's outputs to results by sample and metrics, and measurements of latency and memory.

Holds: outputs and targets that are no numbers are refused with the sample.
"""
