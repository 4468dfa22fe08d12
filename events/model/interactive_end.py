"""Reason for which an interactive session ended, as its program leaves it, its agent reports it, and the job's status has it."""

from typing import Final

SESSION_ENDED: Final = "interactive session ended: "
"""How such a reason begins, in the report of a clean exit and in the status of the job that succeeded."""
END_FILE: Final = "interactive-end.txt"
"""In the rank's own folder: one line, without the beginning."""
MAX_END_CHARS: Final = 300
