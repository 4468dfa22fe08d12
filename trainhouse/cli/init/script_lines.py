"""The lines that give an existing training script curves and checkpoints, at the places where they belong.

Holds: pure; a script is changed by added lines, and by the one that says how many steps there are; all else stays byte for byte.
Never: runs the script.
"""

import ast
import io
from dataclasses import dataclass
from typing import Final

IMPORT: Final = "from trainhouse.workers import Session"
START: Final = "session = Session.start()  # joins the gang, seeds every generator"
GENERAL: Final = f"""\
{IMPORT}
{START}
session.track(model=model, optimizer=optimizer)  # 1: what a checkpoint holds; restores the newest one
for step in session.steps(2000, save_every_steps=500):  # 2: instead of range(2000)
    ...
    session.log(loss=loss.item())  # 3: a curve
"""


@dataclass(frozen=True)
class Script:
    """Names in a script. `loop`: the innermost one that calls `LOSS.backward()`."""

    model: str
    optimizer: str
    loss: str
    loop: ast.For


class NoPlaceError(Exception):
    """The script has no place for the lines, as far as its text shows; the message says which one is missing."""


def lines_of(source: str) -> list[str]:
    """The lines of a text as a syntax tree counts them: a line feed alone ends one, unlike in `str.splitlines`."""
    return list(io.StringIO(source, newline="\n"))


def with_lines(source: str, name: str) -> str:
    """The script with the lines in it. Raises NoPlaceError, where a person has to place them."""
    tree = _tree(source, name)
    if "\r" in source.replace("\r\n", ""):
        raise NoPlaceError(f"{name} has lines that end with a carriage return alone")
    if any(isinstance(node, ast.ImportFrom) and (node.module or "").startswith("trainhouse") for node in ast.walk(tree)):
        raise NoPlaceError(f"{name} imports Trainhouse already")
    found = _found(tree, name)
    lines = lines_of(source)
    last = found.loop.body[-1]
    changes: list[tuple[int, str]] = [
        (_after_imports(tree), f"{IMPORT}\n\n{START}\n"),
        (found.loop.lineno - 1, f"{_indent(lines, found.loop)}session.track(model={found.model}, optimizer={found.optimizer})\n"),
        (last.end_lineno or last.lineno, f"{_indent(lines, found.loop.body[0])}session.log(loss={found.loss}.item())\n"),
    ]
    _count_steps(lines, found.loop)
    changes += _unless_joined(tree, lines, name)
    for at, text in sorted(changes, key=lambda change: -change[0]):
        if at and not lines[at - 1].endswith("\n"):
            lines[at - 1] += "\n"
        lines[at:at] = [text.replace("\n", "\r\n") if "\r\n" in source else text]
    changed = "".join(lines)
    try:
        ast.parse(changed)
    except SyntaxError as error:
        raise NoPlaceError(f"{name}: with the lines in it the script does not parse ({error.msg})") from error
    return changed


def _tree(source: str, name: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise NoPlaceError(f"{name}:{error.lineno}: {error.msg}") from error
    except ValueError as error:
        # Python 3.11 says so of null bytes.
        raise NoPlaceError(f"{name}: {error}") from error


def _found(tree: ast.Module, name: str) -> Script:
    optimizers = [(target, model) for target, model in map(_optimizer, ast.walk(tree)) if target and model]
    if len(optimizers) != 1:
        count = "no optimizer" if not optimizers else f"{len(optimizers)} optimizers"
        raise NoPlaceError(f"{name} makes {count} of MODEL.parameters(), not one")
    loops = [(node, loss) for node in ast.walk(tree) if isinstance(node, ast.For) and (loss := _loss(node))]
    if not loops:
        raise NoPlaceError(f"{name} has no loop that calls LOSS.backward()")
    loop, loss = loops[-1]
    if len(loops) > 1:
        raise NoPlaceError(f"{name}:{loop.lineno}: the loop that calls {loss}.backward() is one of {len(loops)}, by epochs as it seems")
    counter = loop.iter
    is_range = isinstance(counter, ast.Call) and isinstance(counter.func, ast.Name) and counter.func.id == "range"
    if not is_range or len(counter.args) != 1 or counter.keywords:  # type: ignore[attr-defined]
        raise NoPlaceError(f"{name}:{loop.lineno}: the loop that calls {loss}.backward() does not count steps by range(STEPS)")
    if loop.body[0].lineno == (loop.iter.end_lineno or loop.lineno):
        raise NoPlaceError(
            f"{name}:{loop.lineno}: the loop that calls {loss}.backward() has its body on the line of `for`: put it on lines of its own"
        )
    return Script(optimizers[0][1], optimizers[0][0], loss, loop)


def _indent(lines: list[str], node: ast.stmt) -> str:
    """The characters before a statement that is the first one on its line, tabs as they are. Offsets of a syntax tree are of UTF-8."""
    return lines[node.lineno - 1].encode()[: node.col_offset].decode()


def _unless_joined(tree: ast.Module, lines: list[str], name: str) -> list[tuple[int, str]]:
    """Additions that let the script's own `init_process_group` be, where a session has joined the ranks already."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_join(node)]
    alone = {id(node.value): node for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    changes = []
    for call in calls:
        statement = alone.get(id(call))
        before = lines[call.lineno - 1].encode()[: call.col_offset]
        if statement is None or not isinstance(call.func, ast.Attribute) or before.strip() or statement.lineno != statement.end_lineno:
            raise NoPlaceError(f"{name}:{call.lineno}: Session.start() joins the ranks: leave out the script's own init_process_group")
        indent, text = before.decode(), lines[call.lineno - 1][len(before.decode()) :]
        lines[call.lineno - 1] = f"{indent}    {text}"
        changes.append(
            (call.lineno - 1, f"{indent}if not {ast.unparse(call.func.value)}.is_initialized():  # Session.start() joins the ranks\n")
        )
    return changes


def _is_join(call: ast.Call) -> bool:
    named = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return named == "init_process_group"


def _optimizer(node: ast.AST) -> tuple[str, str]:
    """(optimizer, model) of `optimizer = Class(model.parameters(), …)`; empty for any other node."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call) or not isinstance(node.targets[0], ast.Name):
        return "", ""
    for argument in node.value.args[:1]:
        called = argument.func if isinstance(argument, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr == "parameters" and isinstance(called.value, ast.Name):
            return node.targets[0].id, called.value.id
    return "", ""


def _loss(loop: ast.For) -> str:
    """The name in `NAME.backward()` somewhere in a loop; empty for none."""
    for node in ast.walk(loop):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr == "backward" and isinstance(called.value, ast.Name):
            return called.value.id
    return ""


def _after_imports(tree: ast.Module) -> int:
    """The line after the imports at the beginning of a module, from 0; after its docstring where it has none."""
    last, is_head = 0, True
    for node in tree.body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_head = is_head and (is_docstring or isinstance(node, ast.Import | ast.ImportFrom))
        # After a semicolon a statement can go on over lines, between which nothing has a place.
        if not is_head and node.lineno > last:
            break
        last = node.end_lineno or node.lineno
    return last


def _count_steps(lines: list[str], loop: ast.For) -> None:
    """Puts `session.steps(STEPS)` in the place of `range(STEPS)`. Offsets of a syntax tree are of UTF-8."""
    called = loop.iter.func  # type: ignore[attr-defined]
    line = lines[called.lineno - 1].encode()
    lines[called.lineno - 1] = (line[: called.col_offset] + b"session.steps" + line[called.end_col_offset :]).decode()
