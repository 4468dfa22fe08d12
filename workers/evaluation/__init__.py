"""Evaluation of a model: suites, their documented result, comparison of two results on the same samples, drift of live values.

Holds: importing this package imports nothing of its modules; NumPy, SciPy, statsmodels and torch come with those that use them.
"""
