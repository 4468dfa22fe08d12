"""Addresses without the user and password in them, for messages.

Holds: pure; text without such an address stays as it is.
"""

import re
from typing import Final

# A password may hold a slash that is not escaped, though no URL may: `user:` before what is no port is an account as well.
ACCOUNT: Final = re.compile(r"(?<=://)(?:[^\s/?#'\"]*|[^\s/?#:@\[]+:(?!\d{1,5}(?:[/?#\s'\"]|$))[^\s'\"]*)@")


def without_account(text: str) -> str:
    """A text in which no URL has `user:password@`."""
    return ACCOUNT.sub("", text)
