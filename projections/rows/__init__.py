"""The rows functions: one module a projection, each pure, from an event to rows of tables.

To add one: a migration that makes the table, a function here, a line in `lanes.py`.
"""
