"""The rules, each a function of parsed sources that returns findings with their place and the norm they miss.

Holds: pure; a finding names file, line, what is there and what to write instead.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

MAX_FUNCTION_LINES: Final = 60
MAX_PARAMETERS: Final = 9
MAX_FOLDER_MODULES: Final = 20
MAX_SAME_BASENAME: Final = 2

# Registrations after which a signature is an interface for people: a command's options (typer), a route's query parameters (FastAPI).
REGISTRATIONS: Final = frozenset({"command", "callback", "get", "post", "put", "patch", "delete", "api_route"})
# Folders that may hold more: one module for each family of events.
LARGE_FOLDERS: Final = frozenset({"events/model"})
# Basenames that say the same thing in every package.
SHARED_BASENAMES: Final = frozenset({"__init__", "__main__", "errors", "settings"})
# Module names from before the field's terms: they name a role in a sentence, not the thing in the module.
BANNED_MODULES: Final = frozenset(Path(__file__).with_name("banned_modules.txt").read_text("utf-8").split())
# A subject of a sentence about the thing ("What is due", "One that waits"), or a verb of speech for a message or a state.
BANNED_OPENING: Final = re.compile(
    r"(What|Who|Whoever|Somebody|Someone|Whose|Whatever|Nobody|Where|When|Why|How|Which|That|Those|Tells?|Told|Hears?|Heard|Says?|Said"
    r"|One(?= (that|who|which|whose|for|to|in|with|at|by|is|has|of)\b|[.,:;]))\b"
)
# The same in names: a value is reported, published, received, observed; a person is a principal, an asker, a user.
BANNED_IN_NAMES: Final = re.compile(
    r"(?:^|_)(tell|tells|teller|telling|told|untold|said|says|hear|hears|heard|who|whoever|whose|nobody)(?:_|$)"
)
_INNER_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
OPENING_NORM: Final = "open with a noun phrase (module, class) or a verb in the third person (function), in the field's term"


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed module; `path` is relative to the repository, with forward slashes."""

    path: str
    tree: ast.Module

    @property
    def folder(self) -> str:
        """Folder of the module."""
        return str(PurePosixPath(self.path).parent)

    @property
    def basename(self) -> str:
        """Name of the module without its package."""
        return PurePosixPath(self.path).stem


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A place that misses a norm. Line 0 stands for the whole file or folder."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.message}"


_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstring_openings(sources: Iterable[Source]) -> Iterator[Finding]:
    """Yields docstrings whose first word is not that of a definition."""
    for source in sources:
        for node in ast.walk(source.tree):
            if not isinstance(node, _Documented):
                continue
            text = ast.get_docstring(node)
            found = BANNED_OPENING.match(text) if text else None
            if text and found:
                first = text.splitlines()[0]
                yield Finding(source.path, node.body[0].lineno, f'docstring opens with "{found[0]}": {OPENING_NORM}: {first!r}')


def long_functions(sources: Iterable[Source]) -> Iterator[Finding]:
    """Yields functions whose body has more than MAX_FUNCTION_LINES lines: a command's signature is its list of options."""
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    message = f"{node.name} has {lines} lines, at most {MAX_FUNCTION_LINES}: split it by meaning"
                    yield Finding(source.path, node.lineno, message)


def long_signatures(sources: Iterable[Source]) -> Iterator[Finding]:
    """Yields functions and constructors with more than MAX_PARAMETERS parameters, `self` and `cls` not counted.

    Commands and routes are left out: their parameters are the options and query parameters that typer and FastAPI read off the signature.
    """
    for source in sources:
        registered = _registered(source.tree)
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in registered:
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = sum(parameter.arg not in ("self", "cls") for parameter in given)
                if count > MAX_PARAMETERS:
                    way_out = "put those that belong together into a settings dataclass"
                    yield Finding(source.path, node.lineno, f"{node.name} has {count} parameters, at most {MAX_PARAMETERS}: {way_out}")


def _registered(tree: ast.Module) -> frozenset[str]:
    """Names of the functions of a module that a decorator or a call registers, as in `app.command("nodes")(nodes)`."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(map(_registers, node.decorator_list)):
            names.add(node.name)
        elif isinstance(node, ast.Call) and _registers(node.func):
            names.update(argument.id for argument in node.args if isinstance(argument, ast.Name))
    return frozenset(names)


def _registers(node: ast.expr) -> bool:
    """Whether it is a call of a method of REGISTRATIONS."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in REGISTRATIONS


def module_names(sources: Iterable[Source]) -> Iterator[Finding]:
    """Yields modules with a banned name."""
    for source in sources:
        if source.basename in BANNED_MODULES:
            yield Finding(source.path, 0, f"a module is not called {source.basename!r}: name the thing that it holds, in the field's term")


def large_folders(sources: Iterable[Source]) -> Iterator[Finding]:
    """Yields folders with more than MAX_FOLDER_MODULES modules, `__init__` not counted."""
    counts: dict[str, int] = defaultdict(int)
    for source in sources:
        counts[source.folder] += source.basename != "__init__"
    for folder, count in counts.items():
        if count > MAX_FOLDER_MODULES and folder not in LARGE_FOLDERS:
            yield Finding(folder, 0, f"{count} modules, at most {MAX_FOLDER_MODULES}: divide it into packages by meaning")


def repeated_basenames(sources: Iterable[Source]) -> Iterator[Finding]:
    """Yields basenames that more than MAX_SAME_BASENAME packages use."""
    places: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        if source.basename not in SHARED_BASENAMES:
            places[source.basename].append(source.path)
    for basename, paths in places.items():
        if len(paths) > MAX_SAME_BASENAME:
            message = f"{basename!r} is a module of {len(paths)} packages, at most {MAX_SAME_BASENAME}: {', '.join(sorted(paths))}"
            yield Finding(min(paths), 0, message)


def speech_names(sources: Iterable[Source], exceptions: Mapping[tuple[str, str], str]) -> Iterator[Finding]:
    """Yields names that say who speaks or listens instead of what the value is, and exceptions that are none any more.

    `exceptions`: reason by (path, name). A name counts once in each module, where it is first given.
    """
    seen: set[tuple[str, str]] = set()
    for source in sources:
        given = [(line, name) for node in ast.walk(source.tree) for line, name in _given_names(node)]
        for line, name in sorted(given):
            found = BANNED_IN_NAMES.search(_INNER_CAPITAL.sub("_", name).lower())
            if found is None or (source.path, name) in seen:
                continue
            seen.add((source.path, name))
            if (source.path, name) not in exceptions:
                way_out = (
                    "name what the value is (reported, published, received, a principal), or give the reason in tests/style/exceptions.py"
                )
                yield Finding(source.path, line, f"{name} is a name with {found[1]!r}: {way_out}")
    for path, name in sorted(set(exceptions) - seen):
        yield Finding("tests/style/exceptions.py", 0, f"{name} of {path} needs no exception any more: delete its line")


def _given_names(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields the names that a node gives to something, with their line; not those that it reads."""
    match node:
        case (
            ast.FunctionDef(name=name, lineno=line)
            | ast.AsyncFunctionDef(name=name, lineno=line)
            | ast.ClassDef(name=name, lineno=line)
            | ast.arg(arg=name, lineno=line)
            | ast.Name(id=name, ctx=ast.Store(), lineno=line)
            | ast.Attribute(attr=name, ctx=ast.Store(), lineno=line)
            | ast.alias(asname=str(name), lineno=line)
            | ast.ExceptHandler(name=str(name), lineno=line)
            | ast.MatchAs(name=str(name), lineno=line)
            | ast.MatchStar(name=str(name), lineno=line)
            | ast.MatchMapping(rest=str(name), lineno=line)
        ):
            yield line, name


def unused_names(found: Iterable[tuple[str, int, str, str]], exceptions: Mapping[str, str]) -> Iterator[Finding]:
    """Yields definitions that nothing outside tests uses, and exceptions that are none any more.

    `found`: (path, line, kind, name) of each. `exceptions`: reason by name.
    """
    seen: set[str] = set()
    for path, line, kind, name in found:
        seen.add(name)
        if name not in exceptions:
            way_out = "delete it, or give the reason in tests/style/exceptions.py"
            yield Finding(path, line, f"{kind} {name} has no caller outside tests: {way_out}")
    for name in sorted(set(exceptions) - seen):
        yield Finding("tests/style/exceptions.py", 0, f"{name} needs no exception any more: delete its line")


RULES: Final = (docstring_openings, long_functions, long_signatures, module_names, large_folders, repeated_basenames)
