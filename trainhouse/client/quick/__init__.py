"""Reads of commands by the standard library alone: a command that asks one thing loads no models, brokers and HTTP libraries."""
