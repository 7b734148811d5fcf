"""`actorflow top`: a live view of an engine or a process in the terminal. Needs the extra `top`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Header, Input, Static

from actorflow.runtime.errors import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = [
    "Source",
    "Table",
    "Top",
    "execution_table",
    "member_table",
    "tree_table",
    "worker_table",
]


class Table(NamedTuple):
    """The content of the screen: a line of figures, the heads of the columns, and the rows."""

    summary: str
    heads: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    """The first cell names what the row is about."""
    sortable: bool = True


class Source(Protocol):
    """Where the tables come from, and what can be done with their rows."""

    @property
    def views(self) -> Sequence[str]:
        """The names of the tables; the first one is shown first."""

    def read(self, view: str) -> Table:
        """Return a table as it is now."""

    def open(self, view: str, name: str) -> str:
        """Return all that is known of a row, as text."""

    def act(self, view: str, action: str, name: str) -> str:
        """Pause, resume or retry what a row is about; return what has happened."""


def worker_table(now: Mapping[str, Any], before: Mapping[str, Any] | None, seconds: float) -> Table:
    """Return the table of the workers of a process, from two snapshots of it.

    Rates are those since the snapshot before, which is `None` at first.
    """
    rows = []
    for name, worker in now["workers"].items():
        old = (before or {}).get("workers", {}).get(name)
        done = worker["processed"] - (old["processed"] if old else worker["processed"])
        batches = worker["batches"] - (old["batches"] if old else worker["batches"])
        reasons = worker["reasons"]
        rows.append(
            (
                name,
                worker["state"],
                worker["held"],
                worker["in_flight"],
                round(done / seconds) if seconds else 0,
                round(done / batches, 1) if batches else 0.0,
                max(reasons, key=reasons.get) if reasons else "",
                _milliseconds(worker["latency_p50"]),
                _milliseconds(worker["latency_p99"]),
                worker["failed"],
                worker["dropped"] + worker["rejected"] + worker["expired"],
                worker["restarts"],
            )
        )
    pool = now["pool"]
    summary = (
        f"process {now['process']}: {len(rows)} workers, "
        f"{sum(row[4] for row in rows):,} messages/s, {pool['threads']} threads"
    )
    heads = (
        "worker", "state", "held", "in flight", "msg/s", "batch", "left by", "p50 ms", "p99 ms",
        "failed", "lost", "restarts",
    )  # fmt: skip
    return Table(summary, heads, rows)


def _milliseconds(seconds: float | None) -> float:
    return 0.0 if seconds is None else round(seconds * 1000, 2)


def execution_table(
    executions: Sequence[Mapping[str, Any]], statistics: Mapping[str, Any], store: str
) -> Table:
    """Return the table of the executions of an engine."""
    rows = [
        (
            row["id"],
            row["kind"],
            row["status"],
            *(row["counts"][name] for name in ("messages", "timers", "tasks", "dead")),
        )
        for row in executions
    ]
    summary = (
        f"{store}: {statistics['live']:,} in memory, {statistics['commits']:,} commits, "
        f"{statistics['tasks']:,} open tasks, {statistics['waiting']:,} waiting"
    )
    return Table(
        summary, ("execution", "kind", "status", "messages", "timers", "tasks", "dead"), rows
    )


def tree_table(now: Mapping[str, Any]) -> Table:
    """Return the supervision trees of a process, a line for each supervisor and child."""
    rows = [row for tree in now["trees"] for row in _branch(tree, 0)]
    heads = ("supervisor or child", "status", "restarts", "held", "limit", "last exit")
    summary = f"process {now['process']}: {len(now['trees'])} supervision trees"
    return Table(summary, heads, rows, sortable=False)


def _branch(tree: Mapping[str, Any], depth: int) -> Iterator[tuple[Any, ...]]:
    limit = f"{tree['recent']} of {tree['max_restarts']} in {tree['within']:g} s"
    name = f"{'  ' * depth}{tree['name']} ({tree['strategy']})"
    yield name, tree["status"], tree["restarts"], "", limit, ""
    for child in tree["children"]:
        if child["supervisor"] is not None:
            yield from _branch(child["supervisor"], depth + 1)
        else:
            held = "" if child["held"] is None else child["held"]
            yield (
                f"{'  ' * depth}  {child['name']}", child["status"], child["restarts"], held, "",
                child["last_exit"] or "",
            )  # fmt: skip


def member_table(cluster: Mapping[str, Any]) -> Table:
    """Return the engines that share a store."""
    rows = [
        (each["name"], round(each["lease"], 1), len(each["partitions"]), each["executions"],
         each["messages"], round(each["lag"], 1), each["version"] or "unknown")
        for each in cluster["members"]
    ]  # fmt: skip
    summary = f"{len(rows)} engines; {len(cluster['unowned'])} partitions without an owner"
    heads = ("engine", "lease s", "partitions", "active", "waiting", "lag s", "version")
    return Table(summary, heads, rows)


def _cell(text: Any, value: Any) -> Text:
    """Return a cell, or the head above it; those of numbers are aligned at the right."""
    is_number = isinstance(value, (int, float))
    return Text(str(text), justify="right" if is_number else "left")


class Details(ModalScreen[None]):
    """All that is known of one row."""

    BINDINGS: ClassVar[list[Any]] = [("escape,q,enter", "dismiss", "Close")]
    CSS = """
    Details { align: center middle; }
    #details { width: 90%; height: 90%; border: round $accent; background: $surface; padding: 0 1; }
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Return the parts of the screen."""
        with VerticalScroll(id="details"):
            yield Static(self._text, markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Let the arrow keys scroll."""
        self.query_one(VerticalScroll).focus()


class Top(App[None]):
    """The screen. An error of the source is shown, and reading goes on.

    With `seconds`, it quits by itself.
    """

    BINDINGS: ClassVar[list[Any]] = [
        ("q", "quit", "Quit"),
        ("v", "view", "View"),
        ("s", "sort", "Sort"),
        ("i", "invert", "Invert"),
        ("slash", "filter", "Filter"),
        ("p", "act('pause')", "Pause"),
        ("u", "act('resume')", "Resume"),
        ("r", "act('retry')", "Retry"),
        ("f", "freeze", "Freeze"),
    ]
    CSS = "#summary { padding: 0 1; } #filter { display: none; } #filter.shown { display: block; }"

    def __init__(self, source: Source, interval: float = 1.0, seconds: float | None = None) -> None:
        super().__init__()
        self._source = source
        self._seconds = seconds
        self._interval = interval
        self._view = 0
        self._table: Table | None = None
        self._column = 0
        self._descending = False
        self._frozen = False
        self._wanted = ""

    def compose(self) -> ComposeResult:
        """Return the parts of the screen."""
        yield Header(show_clock=True)
        yield Static("reading ...", id="summary", markup=False)
        yield Input(placeholder="only rows that contain this text", id="filter")
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to read."""
        self.title = "actorflow top"
        self.query_one(DataTable).focus()
        self.set_interval(self._interval, self.refresh_table)
        if self._seconds is not None:
            self.set_timer(self._seconds, self.exit)
        self.refresh_table()

    @property
    def _shown(self) -> str:
        return self._source.views[self._view]

    def refresh_table(self) -> None:
        """Read the table again and draw it."""
        if self._frozen:
            return
        try:
            self._table = self._source.read(self._shown)
        except Exception as error:  # noqa: BLE001 - an engine that restarts comes back
            self._summary(f"cannot be read: {text_of(error)}")
            return
        self.show()

    def _summary(self, text: str) -> None:
        self.screen_stack[0].query_one("#summary", Static).update(text)

    def show(self) -> None:
        """Draw the rows, sorted and filtered."""
        if self._table is None:
            return
        summary, heads, rows, sortable = self._table
        shown = [row for row in rows if self._wanted in " ".join(map(str, row)).lower()]
        column = self._column % len(heads)
        order = ""
        if sortable:
            shown.sort(key=lambda row: row[column], reverse=self._descending)
            order = f"   sorted by {heads[column]} {'v' if self._descending else '^'}"
        self._summary(f"{self._shown}: {summary}{order}{'   FROZEN' if self._frozen else ''}")
        table = self.screen_stack[0].query_one(DataTable)
        at, name = table.cursor_row, self._name_under(table)
        table.clear(columns=True)
        table.add_columns(
            *(_cell(head, row) for head, row in zip(heads, (shown or [heads])[0], strict=True))
        )
        table.add_rows([[_cell(cell, cell) for cell in row] for row in shown])
        places = [str(row[0]) for row in shown]
        table.move_cursor(row=places.index(name) if name in places else at)

    @staticmethod
    def _name_under(table: DataTable[Any]) -> str | None:
        """Return what the row under the cursor is about, wherever sorting has moved it."""
        return str(table.get_row_at(table.cursor_row)[0]) if table.row_count else None

    def action_view(self) -> None:
        """Show the next table."""
        self._view = (self._view + 1) % len(self._source.views)
        self._column, self._frozen = 0, False
        self.refresh_table()

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._column += 1
        self.show()

    def action_invert(self) -> None:
        """Invert the order."""
        self._descending = not self._descending
        self.show()

    def action_freeze(self) -> None:
        """Stop reading, or go on."""
        self._frozen = not self._frozen
        self.show()

    def action_filter(self) -> None:
        """Show the field for the filter."""
        field = self.query_one("#filter", Input)
        field.add_class("shown")
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while a text is typed."""
        self._wanted = event.value.lower()
        self.show()

    def on_input_submitted(self) -> None:
        """Return to the table."""
        self.query_one(DataTable).focus()

    def on_data_table_row_selected(self) -> None:
        """Open a row: Enter, or a click."""
        self._with_row(lambda name: self.push_screen(Details(self._source.open(self._shown, name))))

    def action_act(self, action: str) -> None:
        """Pause, resume or retry what the row under the cursor is about."""
        self._with_row(
            lambda name: self.notify(self._source.act(self._shown, action, name), markup=False)
        )
        self.refresh_table()

    def _with_row(self, do: Callable[[str], Any]) -> None:
        name = self._name_under(self.query_one(DataTable))
        if name is None:
            return
        try:
            do(name)
        except Exception as error:  # noqa: BLE001 - refused, or the engine is gone: it says so
            self.notify(text_of(error), severity="error", markup=False)
