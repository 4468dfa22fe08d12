"""The words of a command without what looks like a secret, for those who read about it. Pure.

Holds: masked are known shapes of keys and tokens, what stands behind a name that says so (`--password x`, `HF_TOKEN=x`, `token: x`), and
values that are random as keys are. What the caller knows as a secret, the caller masks.
"""

import re
import shlex
from collections.abc import Iterable

from trainhouse.events.security.sensitive import MASKED, looks_secret, without_shapes

_PAIR = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)(?P<is>\s*[=:]\s*)(?P<value>'[^']*'|\"[^\"]*\"|[^\s'\";|&]+)")
_OPTION = re.compile(r"(?P<name>--?[A-Za-z][A-Za-z0-9_-]*)(?P<is>\s+)(?P<value>'[^']*'|\"[^\"]*\"|[^\s'\";|&-][^\s'\";|&]*)")
_RUN = re.compile(r"[A-Za-z0-9+/_=-]{20,4096}")


def masked_command(words: Iterable[str]) -> str:
    """A command as a shell would take it, masked."""
    shown, name = [], ""
    for word in words:
        shown.append(MASKED if name and not word.startswith("-") and looks_secret(name, word) else masked_text(word))
        name = word.lstrip("-") if re.fullmatch(r"--?[A-Za-z][A-Za-z0-9_-]*", word) else ""
    return shlex.join(shown)


def masked_text(text: str) -> str:
    """A text, perhaps of a shell, masked."""
    text = without_shapes(text)
    for pattern in (_PAIR, _OPTION):
        text = pattern.sub(_value, text)
    return _RUN.sub(lambda run: MASKED if looks_secret("", run[0]) else run[0], text)


def _value(found: re.Match[str]) -> str:
    name, value = found["name"].strip("-"), found["value"].strip("'\"")
    return f"{found['name']}{found['is']}{MASKED}" if value != MASKED and looks_secret(name, value) else found[0]
