"""Errors in the description of an emulated fleet.

Holds: every message names the option or the line, and what to write instead.
"""


class FleetError(Exception):
    """Base of all errors of the emulator."""


class InvalidPlanError(FleetError):
    """An option or a line of the script cannot be read."""
