"""Objectives of the platform (SLOs): targets as data, how well they are met, what is left of their budgets, how fast it burns."""
