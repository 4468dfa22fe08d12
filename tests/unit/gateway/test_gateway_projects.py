"""What a token's holder may do in projects, by their members: declared ones, and all others by the rule `*`."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from trainhouse.events import ProjectApplied
from trainhouse.gateway.auth.memberships import ProjectBook
from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.errors import ProblemError

_versions = itertools.count(1)


def book(**members: dict[str, str] | None) -> ProjectBook:
    """Projects by their members; `others` is the rule for those that nobody declared."""
    made = ProjectBook(known=True)
    for name, of in members.items():
        about: dict[str, Any] = {"name": "*" if name == "others" else name, "members": of}
        made.put(ProjectApplied.model_validate({"project": about, "version": next(_versions), "user": "ops", "applied_at_ms": 1}))
    return made


def holder(sub: str, role: Role = Role.SUBMITTER, *projects: str) -> Principal:
    return Principal(sub, (role,), projects or ("*",))


def may_write(principal: Principal, project: str) -> bool:
    """As routes that write ask: by the role, then in the scope of writing."""
    return principal.may(Role.SUBMITTER) and principal.writing().sees(project)


def test_the_members_of_all_other_projects_bind_a_token_of_all_projects() -> None:
    projects = book(others={"ana": "submitter", "vera": "viewer"}, vision={"bot": "submitter"}, speech=None)
    bot, vera, ana = (projects.narrowed(holder(sub)) for sub in ("bot", "vera", "ana"))
    for nobodys in ("nobodys", "default", "*"):
        assert bot.sees(nobodys) and not may_write(bot, nobodys), "the rule for undeclared projects does not know it"
        assert not may_write(vera, nobodys)
    assert may_write(ana, "nobodys") and not may_write(ana, "vision")
    assert may_write(bot, "vision") and may_write(bot, "speech") and may_write(vera, "speech")


def test_what_such_a_token_writes_to_is_named_and_nothing_else_exists_for_a_write() -> None:
    projects = book(others={"ana": "submitter"}, vision={"bot": "submitter"}, speech={"ana": "submitter"})
    writing = projects.narrowed(holder("bot")).writing()
    assert not writing.everywhere and writing.projects == ("vision",)
    assert writing.sees("vision") and not writing.sees("speech") and not writing.sees("nobodys")
    assert projects.narrowed(holder("eve")).writing().projects == (), "code is for jobs, and it may submit none"
    everywhere = projects.narrowed(holder("ana")).writing()
    assert everywhere.everywhere and everywhere.sees("nobodys") and not everywhere.sees("vision")


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMIN])
def test_operators_look_after_all_projects(role: Role) -> None:
    projects = book(others={"ana": "submitter"}, vision={"ana": "submitter"})
    ops = projects.narrowed(holder("ops", role))
    assert may_write(ops, "vision") and may_write(ops, "nobodys") and ops.writing().everywhere


def test_a_token_of_one_undeclared_project_is_bound_by_the_rule_for_it() -> None:
    projects = book(others={"ana": "submitter", "vera": "viewer"})
    assert may_write(projects.narrowed(holder("ana", Role.SUBMITTER, "nobodys")), "nobodys")
    assert not may_write(projects.narrowed(holder("vera", Role.SUBMITTER, "nobodys")), "nobodys")
    with pytest.raises(ProblemError, match="member of none"):
        projects.narrowed(holder("eve", Role.SUBMITTER, "nobodys"))


def test_where_the_rule_for_others_has_no_members_a_token_of_all_projects_is_not_bound_by_it() -> None:
    for projects in (book(vision={"ana": "submitter"}), book(others=None, vision={"ana": "submitter"})):
        bot = projects.narrowed(holder("bot"))
        assert may_write(bot, "nobodys") and bot.writing().everywhere and not may_write(bot, "vision")


def test_a_rule_that_comes_later_binds_from_then_on() -> None:
    projects = book(vision=None)
    assert may_write(projects.narrowed(holder("bot")), "nobodys")
    about = {"project": {"name": "*", "members": {"ana": "submitter"}}, "version": next(_versions), "user": "ops", "applied_at_ms": 1}
    projects.put(ProjectApplied.model_validate(about))
    assert not may_write(projects.narrowed(holder("bot")), "nobodys")
