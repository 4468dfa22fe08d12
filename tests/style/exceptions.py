"""Definitions without a caller in the code, each with its reason. `LIBRARY_HOOKS` are patterns of names that libraries call."""

from typing import Final

LIBRARY_HOOKS: Final = (
    "_",  # registered by a decorator (functools.singledispatch)
    "__getattr__",  # modules that import on first use
    "visit_*",  # ast.NodeVisitor
    "on_*",  # textual: messages
    "action_*",  # textual: key bindings
    "check_action",  # textual
    "_repr_html_",  # IPython
)
LIBRARY_DECORATORS: Final = (
    "@*.command*",
    "@*.callback*",
    "@*.get*",
    "@*.post*",
    "@*.put*",
    "@*.patch*",
    "@*.delete*",
    "@*.middleware*",
    "@*.exception_handler*",
    "@*.agent*",
    "@*.timer*",
    "@*.task*",
    "@*validator*",
    "@*serializer*",
    "@computed_field",
    "@override",
)

UNUSED: Final[dict[str, str]] = {}
