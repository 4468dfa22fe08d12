"""Name of the default project. Pure, without models of events."""

from typing import Final

DEFAULT_PROJECT: Final = "default"
"""Project of a job, secret or model of which none is given."""
