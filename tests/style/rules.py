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
MAX_FOLDER_MODULES: Final = 20
MAX_SAME_BASENAME: Final = 2

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


RULES: Final = (docstring_openings, long_functions, module_names, large_folders, repeated_basenames)
