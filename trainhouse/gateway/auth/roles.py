"""Principals and their rights: roles, and the projects that they hold for.

Holds: pure; a role includes every lesser one; a project outside a principal's own does not exist for it.
"""

from dataclasses import dataclass, replace
from enum import IntEnum

ALL_PROJECTS = "*"


class Role(IntEnum):
    """Roles of a principal. `viewer` reads; `approver` approves models; `submitter` writes jobs; `operator` changes the fleet; `admin` does
    all. Approving is no part of a greater role but the admin's."""

    VIEWER = 1
    APPROVER = 2
    SUBMITTER = 3
    OPERATOR = 4
    ADMIN = 5

    @classmethod
    def named(cls, name: str) -> "Role":
        """By its name in lower case. Raises KeyError."""
        return cls[name.upper()]


NAMES = tuple(role.name.lower() for role in Role)


@dataclass(frozen=True)
class Principal:
    """The holder of a token. `projects` is ("*",) for all of them; `token_id` names the token, for its revocation.

    `read_only`: projects in which its membership allows no writes, whatever the token says. `hidden`: ones that "*" does not mean.
    `writes_in`: of a token of all projects, the only ones in which it may write; None where undeclared ones are open to it.
    """

    sub: str
    roles: tuple[Role, ...]
    projects: tuple[str, ...]
    token_id: str = ""
    expires_s: int | None = None
    # Of the pages' session that it came by; empty where the token itself was shown.
    session_id: str = ""
    read_only: frozenset[str] = frozenset()
    writes_in: frozenset[str] | None = None
    hidden: frozenset[str] = frozenset()
    # The name of the key that signed the token, which ends with it.
    key_id: str = ""
    # Of a link: the only job that it may read, and the token that made the link.
    run: str = ""
    made_by: str = ""

    @property
    def role(self) -> Role:
        """The greatest role."""
        return max(self.roles)

    @property
    def everywhere(self) -> bool:
        """True if it may see all projects."""
        return ALL_PROJECTS in self.projects

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids by which a revocation may name it."""
        return tuple(one for one in (self.token_id, self.session_id, self.made_by) if one)

    @property
    def approves(self) -> bool:
        """True if it may approve and reject versions of models."""
        return Role.APPROVER in self.roles or Role.ADMIN in self.roles

    def may(self, role: Role) -> bool:
        """Returns whether it has a role, or a greater one."""
        return self.role >= role

    def sees(self, project: str) -> bool:
        """Returns whether what belongs to a project exists for it."""
        return project in self.projects or (self.everywhere and project not in self.hidden)

    def only_reads(self, project: str) -> bool:
        """Returns whether its membership lets it read what belongs to a project, and no more."""
        return project in self.read_only or (self.writes_in is not None and project not in self.writes_in)

    def writing(self) -> "Principal":
        """As far as it may write: projects that it may only read do not exist for it."""
        if self.writes_in is not None:
            return replace(self, projects=tuple(sorted(p for p in self.writes_in if self.sees(p))))
        if not self.read_only:
            return self
        return replace(self, projects=tuple(p for p in self.projects if p not in self.read_only), hidden=self.hidden | self.read_only)
