"""`actorflow top`: a live view of workers or executions in the terminal. Needs the extra `top`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from textual.app import App, ComposeResult
from textual.widgets import DataTable, Footer, Header, Input, Static

from actorflow.runtime.errors import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Table", "Top", "execution_table", "worker_table"]


class Table(NamedTuple):
    """The content of the screen: a line of figures, the heads of the columns, and the rows."""

    summary: str
    heads: tuple[str, ...]
    rows: list[tuple[Any, ...]]


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


class Top(App[None]):
    """The screen. `read` returns the table; an error is shown, and reading goes on.

    With `seconds`, it quits by itself.
    """

    BINDINGS: ClassVar[list[Any]] = [
        ("q", "quit", "Quit"),
        ("s", "sort", "Sort by the next column"),
        ("r", "reverse", "Reverse"),
        ("slash", "filter", "Filter"),
        ("p", "pause", "Pause"),
    ]
    CSS = "#summary { padding: 0 1; } #filter { display: none; } #filter.shown { display: block; }"

    def __init__(
        self, read: Callable[[], Table], interval: float = 1.0, seconds: float | None = None
    ) -> None:
        super().__init__()
        self._seconds = seconds
        self._read = read
        self._interval = interval
        self._table: Table | None = None
        self._column = 0
        self._descending = False
        self._paused = False
        self._wanted = ""

    def compose(self) -> ComposeResult:
        """Return the parts of the screen."""
        yield Header(show_clock=True)
        yield Static("reading ...", id="summary")
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

    def refresh_table(self) -> None:
        """Read the table again and draw it."""
        if self._paused:
            return
        try:
            self._table = self._read()
        except Exception as error:  # noqa: BLE001 - an engine that restarts comes back
            self.query_one("#summary", Static).update(f"cannot be read: {text_of(error)}")
            return
        self.show()

    def show(self) -> None:
        """Draw the rows, sorted and filtered."""
        if self._table is None:
            return
        summary, heads, rows = self._table
        shown = [row for row in rows if self._wanted in " ".join(map(str, row)).lower()]
        column = self._column % len(heads)
        shown.sort(key=lambda row: row[column], reverse=self._descending)
        mark = "v" if self._descending else "^"
        self.query_one("#summary", Static).update(
            f"{summary}   sorted by {heads[column]} {mark}{'   PAUSED' if self._paused else ''}"
        )
        table = self.query_one(DataTable)
        at = table.cursor_row
        table.clear(columns=True)
        table.add_columns(*heads)
        table.add_rows([[str(cell) for cell in row] for row in shown])
        table.move_cursor(row=at)

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._column += 1
        self.show()

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._descending = not self._descending
        self.show()

    def action_pause(self) -> None:
        """Stop reading, or go on."""
        self._paused = not self._paused
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
