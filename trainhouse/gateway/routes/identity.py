"""Who the caller is, and a session for the pages."""

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from trainhouse.gateway import tokens
from trainhouse.gateway.auth import COOKIE, Viewer, unauthorized
from trainhouse.gateway.context import Here
from trainhouse.gateway.errors import BadToken
from trainhouse.gateway.roles import Principal

router = APIRouter(prefix="/v1", tags=["identity"])


class WhoAmI(BaseModel):
    """What the caller's token says."""

    sub: str
    roles: list[str]
    projects: list[str]
    expires_s: int | None = Field(description="seconds since 1970; null: the token does not expire by itself")


class SessionRequest(BaseModel):
    """A token to keep in the pages' cookie."""

    token: Annotated[str, Field(min_length=1, max_length=tokens.MAX_TOKEN_CHARS)]


@router.get("/whoami")
def whoami(principal: Viewer) -> WhoAmI:
    """Who the caller is."""
    return shown(principal)


@router.post("/session")
def session(body: SessionRequest, here: Here, response: Response) -> WhoAmI:
    """Takes a token and answers with the pages' cookie, which no script reads and no other site sends."""
    try:
        principal = tokens.read(here.key, body.token)
    except BadToken as error:
        raise unauthorized(str(error)) from error
    response.set_cookie(COOKIE, body.token, path="/", httponly=True, samesite="strict", secure=here.settings.https)
    return shown(principal)


@router.delete("/session", status_code=204)
def end_session(response: Response) -> None:
    """Forgets the pages' cookie."""
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")


def shown(principal: Principal) -> WhoAmI:
    """As an answer."""
    return WhoAmI(
        sub=principal.sub,
        roles=[role.name.lower() for role in principal.roles],
        projects=list(principal.projects),
        expires_s=principal.expires_s,
    )
