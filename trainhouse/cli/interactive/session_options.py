"""Options of commands that start an interactive job, listed once for all of them.

Holds: a command that is decorated has these options after its own, and gets what they say as one `sessions.Wanted` and the folder of code.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Optional, get_type_hints

import typer

from trainhouse.cli.shared import complete

if TYPE_CHECKING:
    from trainhouse.cli.interactive.sessions import Wanted

AttachTo = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--job", "-j", metavar="JOB", help="Attach to this job instead of starting one.", autocompletion=complete.jobs),
]


class _Options:
    """Their declaration: options as typer reads them off a signature, and defaults."""

    devices: Annotated[int, typer.Option("--devices", "--gpus", "-n", min=1, help="Devices, all on one node.")] = 1
    device: Annotated[Optional[str], typer.Option(help="Device type: any, cpu, or a GPU's type.")] = None  # noqa: UP045
    idle_limit: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Time without use and work after which the job ends: 30m, 2h; default: 1h."),
    ] = None
    max_run_time: Annotated[Optional[str], typer.Option(help="90s, 15m, 2h: then it ends, used or not.")] = None  # noqa: UP045
    name: Annotated[Optional[str], typer.Option("--name", help="Name of the job.")] = None  # noqa: UP045
    project: Annotated[Optional[str], typer.Option(help="Owner of data rights.")] = None  # noqa: UP045
    team: Annotated[Optional[str], typer.Option(help="Owner of quota.")] = None  # noqa: UP045
    pool: Annotated[Optional[str], typer.Option(help="Pool of nodes.")] = None  # noqa: UP045
    priority: Annotated[Optional[int], typer.Option(help="0 is the highest, 100 the lowest.")] = None  # noqa: UP045
    env: Annotated[Optional[list[str]], typer.Option("--env", "-e", metavar="K=V", help="Environment; repeatable.")] = None  # noqa: UP045
    secret: Annotated[Optional[list[str]], typer.Option(metavar="NAME", help="A secret of the agent's as environment; repeatable.")] = None  # noqa: UP045
    interpreter: Annotated[Optional[str], typer.Option(help="Python that `python` means; default: the agent's.")] = None  # noqa: UP045
    code: Annotated[Optional[Path], typer.Option(help="Folder of which a copy is the working folder; default: an empty one.")] = None  # noqa: UP045


@dataclass(frozen=True)
class SessionOptions:
    """Options as they were typed. `code`: folder of which a copy is the working folder."""

    wanted: "Wanted"
    code: Path | None


_HINTS: Final = get_type_hints(_Options, include_extras=True)
_LISTED: Final = {
    name: inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=getattr(_Options, name), annotation=hint)
    for name, hint in _HINTS.items()
}
LAST: Final = "data_dir"


def with_session_options(kind: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the options to a command whose function takes `session`; they stand before its `data_dir`. `kind`: of the session."""

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        own = [each for each in inspect.signature(function).parameters.values() if each.name != "session"]
        signature = inspect.Signature([*(p for p in own if p.name != LAST), *_LISTED.values(), *(p for p in own if p.name == LAST)])

        @functools.wraps(function)
        def command(**given: Any) -> None:
            from trainhouse.cli.interactive.sessions import Wanted

            typed = {name: given.pop(name) for name in _LISTED}
            code, env, secrets = typed.pop("code"), typed.pop("env") or (), typed.pop("secret") or ()
            function(**given, session=SessionOptions(Wanted(kind=kind, env=env, secrets=secrets, **typed), code))

        hints = get_type_hints(function, include_extras=True) | _HINTS
        vars(command).pop("__wrapped__")  # typer would read the options off what is wrapped
        vars(command)["__signature__"] = signature
        command.__annotations__ = {name: hints[name] for name in signature.parameters} | {"return": None}
        return command

    return decorated
