"""Private keys in files that their owners alone read, and lists of public ones.

Holds: a key is made where there is none, and whole before it has its name; two processes that make one at once keep the same.
"""

from pathlib import Path

from trainhouse.events.security.signing import InvalidKeyError, SigningKey, checked_public_key
from trainhouse.private_files import write_once


def read_key(path: Path) -> SigningKey:
    """The key in a file. Raises InvalidKeyError that says what to do."""
    try:
        return SigningKey.parsed(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidKeyError(
            f"{path} holds no signing key ({type(error).__name__}); move it away, and `trainhouse operations-key {path}` makes one"
        ) from error


def kept_key(path: Path) -> SigningKey:
    """The key in a file, which is made (0600) where there is none. Raises InvalidKeyError."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_once(path, f"{SigningKey.made().private_text()}\n".encode())
    return read_key(path)


def public_keys(path: Path) -> frozenset[str]:
    """The public keys of a file, one a line; '#' begins a remark. Raises InvalidKeyError that names the line."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, ValueError) as error:
        raise InvalidKeyError(f"{path} cannot be read as a list of public keys ({type(error).__name__})") from error
    found = set[str]()
    for number, line in enumerate(lines, 1):
        if text := line.partition("#")[0].strip():
            try:
                found.add(checked_public_key(text))
            except InvalidKeyError as error:
                raise InvalidKeyError(f"{path}:{number}: {error}") from error
    return frozenset(found)
