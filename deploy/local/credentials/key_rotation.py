"""New signing keys in the place of those of before, while processes sign with either and others check.

Holds: a public key is on its list before anything can be signed with it, and those of before stay there, marked, until they are retired.
Each step is one file written whole, so a rotation that is cut off anywhere leaves keys that count, and the next one goes on with its key.
Never: marks or takes away a line of somebody else's.
"""

from __future__ import annotations

from pathlib import Path

from trainhouse.private_files import move_private, write_private

MARK = "# until `trainhouse credentials retire`"


def renew(private: Path, listed: Path, prefix: str = "") -> None:
    """A new key in its file, listed beside the old one. `prefix`: what stands before a key in its line. Raises InvalidKeyError."""
    from trainhouse.events.security.key_files import kept_key

    following = private.with_suffix(".next")
    new, old = kept_key(following).public_key, kept_key(private).public_key
    write_private(listed, with_next(listed.read_text(), prefix, old, new).encode())
    move_private(following, private)


def retire(private: Path, listed: Path) -> None:
    """Takes those of before from the list. Raises InvalidKeyError."""
    from trainhouse.events.security.key_files import kept_key

    write_private(listed, retired(listed.read_text(), kept_key(private).public_key).encode())


def of_before(listed: Path) -> int:
    """Number of earlier keys that are still accepted."""
    return sum(MARK in line for line in listed.read_text().splitlines()) if listed.exists() else 0


def with_next(text: str, prefix: str, old: str, new: str) -> str:
    """The list with the old key marked and the new one on it."""
    lines = [_marked(line) if old in _without_comment(line) else line for line in text.splitlines()]
    if not any(old in _without_comment(line) for line in lines):
        lines.append(_marked(f"{prefix}{old}"))
    if not any(new in _without_comment(line) for line in lines):
        lines.append(f"{prefix}{new}")
    return _text(lines)


def retired(text: str, newest: str) -> str:
    """The list without what is marked; the newest key stays in any case."""
    lines = [_without_comment(line).rstrip() if newest in _without_comment(line) and MARK in line else line for line in text.splitlines()]
    return _text([line for line in lines if MARK not in line])


def _marked(line: str) -> str:
    return line if MARK in line else f"{_without_comment(line).rstrip()} {MARK}"


def _without_comment(line: str) -> str:
    return line.partition("#")[0]


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
