"""Groups of parts, as the supervisor's configuration names them."""

from typing import Final

TIMED: Final = "timed"
"""Parts that are started by the clock."""
