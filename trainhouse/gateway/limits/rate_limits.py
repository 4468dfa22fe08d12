"""Rate limits of callers and projects: a bucket each, refilled by the minute; the rest is in every answer's headers.

Holds: a request beyond a limit is answered 429 with how long to wait, and takes nothing from any bucket; the number of buckets is bounded,
the ones longest unused are forgotten. Counts what this process is asked: of several gateways each counts for itself.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trainhouse.gateway.auth.memberships import ProjectBook
from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.errors import ProblemError
from trainhouse.scheduler.core.intake.bucket import Bucket, Rate, left, take, wait_s

MAX_BUCKETS = 10_000
TITLE = "Too many requests"


@dataclass(frozen=True)
class Limit:
    """One limit of a request: the name in headers, whose it is in words, and the rate."""

    kind: str
    holder: str
    rate: Rate


@dataclass
class Limits:
    """The buckets of one gateway. `per_user`: requests a minute of one person or service, whatever their tokens."""

    per_user: int
    book: ProjectBook
    _buckets: OrderedDict[str, Bucket] = field(default_factory=OrderedDict)

    def request(self, principal: Principal, now_ms: int) -> list[tuple[str, str]]:
        """Counts one request, and gives headers that say what is left. Raises ProblemError 429."""
        return self._take([Limit("user", f"user {principal.sub}", of_minute(self.per_user)), *self._of_projects(principal)], now_ms)

    def submission(self, principal: Principal, project: str, now_ms: int) -> None:
        """Counts one job that a project submits. Raises ProblemError 429."""
        rule = self.book.rule(project)
        per_minute = rule.limits.submissions_per_minute if rule else None
        if rule is not None and per_minute is not None:
            self._take([Limit("submissions", f"project {rule.name}", of_minute(per_minute))], now_ms, "submit {n} jobs a minute")

    def _of_projects(self, principal: Principal) -> Iterable[Limit]:
        """A request counts for each project that a token names: which one it is about is known only later."""
        if principal.may(Role.OPERATOR) or principal.everywhere:
            return
        for name in principal.projects:
            rule = self.book.rule(name)
            if rule is not None and rule.limits.requests_per_minute is not None:
                yield Limit("project", f"project {rule.name}", of_minute(rule.limits.requests_per_minute))

    def _take(self, limits: list[Limit], now_ms: int, what: str = "ask {n} times a minute") -> list[tuple[str, str]]:
        after: dict[str, Bucket] = {}
        for limit in limits:
            key = f"{limit.kind}:{limit.holder}"
            bucket = take(limit.rate, after.get(key) or self._buckets.get(key), now_ms)
            if bucket is None:
                raise _too_many(limit, wait_s(limit.rate, self._buckets.get(key), now_ms), what)
            after[key] = bucket
        for key, bucket in after.items():
            self._buckets[key] = bucket
            self._buckets.move_to_end(key)
        while len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return _headers([(limit, left(limit.rate, after[f"{limit.kind}:{limit.holder}"], now_ms)) for limit in limits])


def of_minute(per_minute: int) -> Rate:
    """So many a minute, and so many at once."""
    return Rate(per_minute, burst=per_minute)


def count(limits: Limits, request: Request, principal: Principal) -> None:
    """Counts a request, and leaves for its answer's headers what is left. Raises ProblemError 429."""
    request.state.rate_headers = limits.request(principal, time.monotonic_ns() // 1_000_000)


def _headers(lefts: list[tuple[Limit, int]]) -> list[tuple[str, str]]:
    """As the draft of the IETF's HTTPAPI group has them: the policies, and what is left of the one that ends first."""
    if not lefts:
        return []
    tightest, remaining = min(lefts, key=lambda found: found[1])
    policies = ", ".join(f'"{limit.kind}";q={limit.rate.per_minute};w=60' for limit, _ in lefts)
    return [
        ("ratelimit-policy", policies),
        ("ratelimit", f'"{tightest.kind}";r={remaining};t={0 if remaining else 1}'),
        ("x-ratelimit-limit", str(tightest.rate.per_minute)),
        ("x-ratelimit-remaining", str(remaining)),
    ]


def _too_many(limit: Limit, again_s: int, what: str) -> ProblemError:
    again_s = max(1, again_s)
    return ProblemError(
        429,
        TITLE,
        f"{limit.holder} may {what.format(n=limit.rate.per_minute)}, and has: try again in {again_s} s, or ask an operator for more",
        headers={
            "Retry-After": str(again_s),
            "RateLimit-Policy": f'"{limit.kind}";q={limit.rate.per_minute};w=60',
            "RateLimit": f'"{limit.kind}";r=0;t={again_s}',
            "X-RateLimit-Limit": str(limit.rate.per_minute),
            "X-RateLimit-Remaining": "0",
        },
    )


class RateHeaders:
    """ASGI middleware: puts on each answer what was left for it by `count`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})

        async def sending(message: Message) -> None:
            found = state.get("rate_headers")
            if message["type"] == "http.response.start" and found:
                present = {name for name, _ in message.get("headers", ())}
                more = [(n.encode(), v.encode()) for n, v in found if n.encode() not in present]
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        await self._app(scope, receive, sending)
