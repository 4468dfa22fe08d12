"""Logs of the client in a program that sets up none: to standard error, among which nothing is lost that the program itself prints.

Holds: configured once, when this is imported, and only where the program has not done so.
"""

import sys

import structlog

if not structlog.is_configured():
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))
