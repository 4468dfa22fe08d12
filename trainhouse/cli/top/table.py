"""A table of `top` that changes in place: the cursor stays on its row, and what did not change is not drawn again."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from trainhouse.client.backend_protocol import Row

Cells = Callable[[Row, int], tuple[Text, ...]]


class LiveTable(DataTable[Text]):
    """Rows by key. `j` and `k` move as the arrows do."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "down"),
        Binding("k", "cursor_up", "up"),
        Binding("enter", "select_cursor", "open"),
        Binding("g", "scroll_top", "first", show=False),
        Binding("G", "scroll_bottom", "last", show=False),
    ]

    def __init__(self, columns: Sequence[str], id: str) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=False)
        self._names = tuple(columns)
        self._shown: dict[str, tuple[Text, ...]] = {}

    def on_mount(self) -> None:
        """Makes the columns."""
        for name in self._names:
            self.add_column(name, key=name)

    @property
    def chosen(self) -> str | None:
        """The key under the cursor."""
        keys = list(self._shown)
        return keys[self.cursor_row] if 0 <= self.cursor_row < len(keys) else None

    def show(self, rows: Sequence[Row], name: str, cells: Cells, now_ms: int) -> None:
        """Shows these rows, in this order; `name`: the field that is their key."""
        wanted = {str(row[name]): cells(row, now_ms) for row in rows}
        if list(wanted) == list(self._shown):
            self._change(wanted)
        else:
            self._refill(wanted)
        self._shown = wanted

    def _change(self, wanted: dict[str, tuple[Text, ...]]) -> None:
        for key, row in wanted.items():
            for column, new, old in zip(self._names, row, self._shown[key], strict=True):
                if new != old:
                    self.update_cell(key, column, new, update_width=len(new) > len(old))

    def _refill(self, wanted: dict[str, tuple[Text, ...]]) -> None:
        chosen, at = self.chosen, self.scroll_offset
        self.clear()
        for key, row in wanted.items():
            self.add_row(*row, key=key)
        if chosen in wanted:
            self.move_cursor(row=list(wanted).index(chosen), scroll=False)
        self.scroll_to(at.x, at.y, animate=False)
