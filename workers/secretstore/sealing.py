"""The operator's key, and what is sealed with it: Fernet (AES-128-CBC with HMAC-SHA256) of the library `cryptography`.

Holds: the key file has one key a line, the current one first; while keys are rotated it has both, so that a reader opens either.
Only its owner may read it. A sealed record that was changed, or moved from another secret, does not open.
"""

import stat
from collections.abc import Sequence
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from trainhouse.private_files import private_folder, write_once, write_private
from trainhouse.workers.secretstore.errors import SealError


class KeyFile:
    """File of the sealing keys. May lie on another volume than the secrets, or on tmpfs where a key service puts it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def keys(self) -> list[bytes]:
        """The current key, then older ones. Raises SealError where there is none, or others may read it."""
        try:
            mode = self.path.stat().st_mode
            if not stat.S_ISREG(mode) or mode & 0o077:
                raise SealError(
                    f"the key {self.path} may be read by others on this machine: `chmod 600` it, then `trainhouse secrets rotate-key`"
                )
            found = self.path.read_bytes().split()
            for key in found:
                Fernet(key)
        except FileNotFoundError:
            raise SealError(f"the key {self.path} of the secrets is not there: put it back, or set the secrets again") from None
        except OSError as error:
            raise SealError(f"the key {self.path} of the secrets cannot be read: {error.strerror}") from error
        except ValueError:
            raise SealError(f"the key file {self.path} holds something that is no key: put it back as it was") from None
        if not found:
            raise SealError(f"the key file {self.path} is empty: put it back as it was")
        return found

    def made(self) -> list[bytes]:
        """The keys; the first one is made where the file is not there."""
        if not self.path.exists():
            self._folder()
            write_once(self.path, Fernet.generate_key() + b"\n")
        return self.keys()

    def replace(self, keys: Sequence[bytes]) -> None:
        """These keys instead, in one step."""
        self._folder()
        write_private(self.path, b"\n".join(keys) + b"\n")

    def _folder(self) -> None:
        """Others may look into it, since the file is its owner's alone, and may put nothing in its place."""
        try:
            private_folder(self.path.parent, 0o755)
        except OSError as error:
            raise SealError(f"the key {self.path} of the secrets cannot be written: {error.strerror}") from error


def seal(keys: Sequence[bytes], plain: bytes) -> bytes:
    """Sealed with the current key."""
    return MultiFernet([Fernet(key) for key in keys]).encrypt(plain)


def unseal(keys: Sequence[bytes], sealed: bytes) -> bytes:
    """Opened with whichever key fits. Raises SealError."""
    try:
        return MultiFernet([Fernet(key) for key in keys]).decrypt(sealed)
    except InvalidToken:
        raise SealError("it was sealed with a key that the key file does not have, or it was changed") from None
