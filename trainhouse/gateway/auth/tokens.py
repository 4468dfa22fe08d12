"""Tokens: JWTs with subject, roles and projects.

Holds: HS256 and no other algorithm; every token has an id, so that it can be revoked; what a token says is bounded.
Never: keeps tokens, or prints a key.
"""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import jwt
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from trainhouse.gateway.auth.keyring import id_of
from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.errors import InvalidTokenError, UnknownKeyError

ALGORITHM = "HS256"
ISSUER = "trainhouse"
MAX_TOKEN_CHARS = 8192
ADVICE = "`trainhouse token create` makes one, `trainhouse env` prints the local user's"

Text = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]+$")]


class Claims(BaseModel):
    """Claims of a token. `exp` is in seconds since 1970; none means that only a revocation ends it."""

    model_config = ConfigDict(strict=True, frozen=True)

    sub: Text
    roles: Annotated[list[str], Field(min_length=1, max_length=4)]
    projects: Annotated[list[Text], Field(min_length=1, max_length=256)]
    jti: Text
    exp: int | None = None


def new_token_id() -> str:
    """A fresh id of a token."""
    return secrets.token_hex(12)


def issue(
    key: bytes, sub: str, roles: Sequence[str], projects: Sequence[str], *, now_s: int, expires_s: int | None = None, token_id: str = ""
) -> str:
    """A signed token. Raises InvalidTokenError where it would say something that no reader takes."""
    fields: dict[str, Any] = {"sub": sub, "roles": list(roles), "projects": list(projects), "jti": token_id or new_token_id()}
    if expires_s is not None:
        fields["exp"] = expires_s
    principal_of(fields)
    return jwt.encode(fields | {"iss": ISSUER, "iat": now_s}, key, algorithm=ALGORITHM)


def read(key: bytes, token: str) -> Principal:
    """Returns the principal of a token. Raises InvalidTokenError with a reason that helps its holder and no attacker.

    UnknownKeyError: another key made it.
    """
    if len(token) > MAX_TOKEN_CHARS:
        raise InvalidTokenError(f"the token has more than {MAX_TOKEN_CHARS} characters")
    try:
        fields = jwt.decode(token, key, algorithms=[ALGORITHM], issuer=ISSUER, options={"require": ["sub", "jti", "iss"]}, leeway=5)
    except jwt.ExpiredSignatureError as error:
        raise InvalidTokenError(f"the token has expired; {ADVICE}") from error
    except (jwt.PyJWTError, ValueError) as error:
        unknown = isinstance(error, jwt.InvalidSignatureError)
        why = ", or the key that signed it was retired" if unknown else ""
        raise (UnknownKeyError if unknown else InvalidTokenError)(f"the token is not one of this Trainhouse{why}; {ADVICE}") from error
    return replace(principal_of(fields), key_id=id_of(key))


def principal_of(fields: dict[str, Any]) -> Principal:
    """Claims as a principal. Raises InvalidTokenError."""
    try:
        claims = Claims.model_validate(fields)
        roles = tuple(Role.named(name) for name in claims.roles)
    except (ValidationError, KeyError) as error:
        raise InvalidTokenError(f"the token's claims make no sense: it needs sub, roles, projects and jti; {ADVICE}") from error
    return Principal(claims.sub, roles, tuple(claims.projects), claims.jti, claims.exp)
