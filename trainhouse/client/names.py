"""Default name of a job, from its command.

Holds: pure.
"""

import re
from typing import Any


def default_name(command: Any) -> str:
    """`python train.py --x` -> `train`; `python -m pkg.gpt` -> `gpt`; else the program's name."""
    words = [str(w) for w in command] if isinstance(command, list | tuple) else []
    rest = words[1:] if words and re.fullmatch(r"python[0-9.]*", words[0].rpartition("/")[2]) else words
    if rest[:1] == ["-m"] and len(rest) > 1:
        return rest[1].rpartition(".")[2]
    if rest[:1] == ["-c"]:
        return "python"
    script = next((w for w in rest if not w.startswith("-")), words[0] if words else "job")
    return script.rpartition("/")[2].removesuffix(".py") or "job"
