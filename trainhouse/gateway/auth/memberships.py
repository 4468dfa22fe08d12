"""Projects as the bus has them: current memberships of a token's holder, and the limits of each project.

Holds: until it is known what was declared before, no token is narrowed, and none is let in; a membership that ended counts from the moment
at which the bus tells it. Operators are not narrowed: they look after all projects. A token of all projects reads them all; it writes where
its holder's membership lets it, in those that nobody declared by the members of the rule "*".
Never: asks the projections; a membership that ended must not wait for them.
"""

from dataclasses import dataclass, field, replace

from trainhouse.events import MemberRole, Project, ProjectApplied
from trainhouse.events.model.project import EVERY_OTHER
from trainhouse.gateway.auth.roles import Principal, Role
from trainhouse.gateway.errors import ProblemError
from trainhouse.scheduler.core.intake.projects import rule_of

REMEMBERED = 10_000
_Rights = tuple[tuple[str, ...], frozenset[str], frozenset[str] | None]


@dataclass
class ProjectBook:
    """The newest of each project. `known`: whether all of before are in."""

    known: bool = False
    _applied: dict[str, ProjectApplied] = field(default_factory=dict)
    _narrowed: dict[tuple[str, tuple[str, ...]], _Rights] = field(default_factory=dict)

    def put(self, applied: ProjectApplied) -> None:
        """A project is so from now on; an older word about it changes nothing."""
        known = self._applied.get(applied.project.name)
        if known is None or known.version <= applied.version:
            self._applied[applied.project.name] = applied
            self._narrowed.clear()

    def complete(self) -> None:
        """All of before are in."""
        self.known = True

    def all(self) -> list[ProjectApplied]:
        """Every project that was declared, by name."""
        return [self._applied[name] for name in sorted(self._applied)]

    def get(self, name: str) -> ProjectApplied | None:
        """A project that was declared."""
        return self._applied.get(name)

    def rule(self, name: str) -> Project | None:
        """Returns the rule of a project, declared or not; None: there is none."""
        found = rule_of(self._applied, name)
        return found.project if found else None

    def maintains(self, principal: Principal, name: str) -> bool:
        """Returns whether somebody may say who is a member of a project, and what its jobs are for."""
        if principal.may(Role.OPERATOR):
            return True
        found = self._applied.get(name)
        return (
            found is not None
            and principal.sees(name)
            and principal.may(Role.SUBMITTER)
            and (found.project.members or {}).get(principal.sub) is MemberRole.MAINTAINER
        )

    def narrowed(self, principal: Principal) -> Principal:
        """A token's holder with the projects that are left of it. Raises ProblemError 403 where none is."""
        if principal.may(Role.OPERATOR):
            return principal
        key = (principal.sub, principal.projects)
        if key not in self._narrowed:
            if len(self._narrowed) >= REMEMBERED:
                self._narrowed.clear()
            self._narrowed[key] = self._rights(principal)
        projects, read_only, writes_in = self._narrowed[key]
        if not projects:
            raise ProblemError(
                403,
                "Forbidden",
                f"{principal.sub} is a member of none of the projects of this token ({', '.join(principal.projects)}); "
                "ask one of their maintainers, or an operator",
            )
        return replace(principal, projects=projects, read_only=read_only, writes_in=writes_in)

    def lost(self, principal: Principal) -> str:
        """Returns the reason that an admitted principal lost its access; empty if it did not."""
        if principal.everywhere or principal.may(Role.OPERATOR):
            return ""
        gone = next((name for name in principal.projects if self._role(name, principal.sub) is None), "")
        return f"{principal.sub} is no member of project {gone} any more" if gone else ""

    def _rights(self, principal: Principal) -> _Rights:
        if principal.everywhere:
            mine, names = principal.projects, [name for name in self._applied if name != EVERY_OTHER]
        else:
            mine = tuple(name for name in principal.projects if self._role(name, principal.sub) is not None)
            names = list(mine)
        read_only = frozenset(name for name in names if not self._submits(name, principal.sub))
        if not principal.everywhere or self._submits(EVERY_OTHER, principal.sub):
            return mine, read_only, None
        # Undeclared projects cannot be named one by one: those that are open to it are.
        return mine, read_only, frozenset(names) - read_only

    def _submits(self, name: str, sub: str) -> bool:
        role = self._role(name, sub)
        return role is not None and role.submits

    def _role(self, name: str, sub: str) -> MemberRole | None:
        """Returns the role of a principal in a project by its members; the greatest where it has no list of them."""
        rule = self.rule(name)
        if rule is None or rule.members is None:
            return MemberRole.MAINTAINER
        return rule.members.get(sub)
