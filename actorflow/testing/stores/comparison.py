"""Reads a store in every way, page by page, and compares it with the model."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Any

from actorflow.engine.stores.protocol import StoreCounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.stores.protocol import Store
    from actorflow.testing.stores.model import Model

__all__ = ["compare", "read_all"]

_MANY = 10_000  # pages, after which a cursor is taken to go round in circles


def read_all(read: Callable[..., Any], limit: int, **filters: Any) -> list[Any]:
    """Return the rows of all pages."""
    rows: list[Any] = []
    after = None
    for _ in range(_MANY):
        page = read(after=after, limit=limit, **filters)
        assert len(page.rows) <= limit, f"{len(page.rows)} rows with limit={limit}"  # noqa: S101 - a failed check
        rows += page.rows
        after = page.after
        if after is None:
            return rows
        assert page.rows, "an empty page is not the last one"  # noqa: S101 - a failed check
    msg = "there is always another page"
    raise AssertionError(msg)


def compare(store: Store, model: Model, names: list[str], limit: int = 2) -> None:
    """Check that a store holds what the model does."""
    _compare_executions(store, model, names, limit)
    _compare_tags(store, model, names, limit)
    _compare_messages(store, model, names, limit)
    _compare_timers(store, model, names, limit)
    _compare_tasks(store, model, names, limit)
    _compare_letters(store, model, names, limit)
    watches = read_all(store.watches, limit)
    _same("watches()", sorted(watches), sorted(model.watches.values()))
    for name in names:
        entries = [tuple(row)[1:] for row in read_all(_history(store, name), limit)]
        _same(f"history({name!r})", entries, [e for e in model.history if e[0] == name])
    expected = {
        name: StoreCounts(
            sum(row.execution == name for row in model.messages),
            sum(row.execution == name for row in model.timers.values()),
            sum(row.execution == name for row in model.tasks.values()),
            sum(row.execution == name for row in model.dead),
        )
        for name in names
    }
    _same("counts()", store.counts(names), expected)


def _same(what: str, found: Any, expected: Any) -> None:
    assert found == expected, f"{what} returned {found} and not {expected}"  # noqa: S101 - a failed check


def _history(store: Store, name: str) -> Callable[..., Any]:
    return lambda **options: store.history(name, **options)


def _compare_executions(store: Store, model: Model, names: list[str], limit: int) -> None:
    rows = [model.executions[name] for name in sorted(model.executions)]
    _same("listing()", read_all(store.listing, limit), rows)
    for field in ("kind", "status", "parent"):
        for value in {getattr(row, field) for row in rows} - {None}:
            found = read_all(store.listing, limit, **{field: value})
            wanted = [row for row in rows if getattr(row, field) == value]
            _same(f"listing({field}={value!r})", found, wanted)
    for kind, status in {(row.kind, row.status) for row in rows}:
        found = read_all(store.listing, limit, kind=kind, status=status)
        wanted = [row for row in rows if (row.kind, row.status) == (kind, status)]
        _same(f"listing(kind={kind!r}, status={status!r})", found, wanted)
    _same("executions()", store.executions([*names, "nobody"]), model.executions)
    for name in (*names, "nobody"):
        _same(f"execution({name!r})", store.execution(name), model.executions.get(name))


def _compare_tags(store: Store, model: Model, names: list[str], limit: int) -> None:
    for name in (*names, "nobody"):
        _same(f"tags({name!r})", store.tags(name), model.tags.get(name, {}))
    rows = [model.executions[name] for name in sorted(model.executions)]
    searches = [
        {},
        {"x": "nothing"},
        *({tag: value} for tag, value in _tags(model)),
        *model.tags.values(),
    ]
    for search in searches:
        wanted = [row for row in rows if search.items() <= model.tags.get(row.id, {}).items()]
        _same(f"listing(tags={search})", read_all(store.listing, limit, tags=search), wanted)
        for row in wanted[:1]:
            found = read_all(
                store.listing, limit, tags=search, kind=row.kind, status=row.status,
                parent=row.parent,
            )  # fmt: skip
            both = [
                each
                for each in wanted
                if (each.kind, each.status) == (row.kind, row.status)
                and row.parent in (None, each.parent)
            ]
            _same(f"listing(tags={search}, kind={row.kind!r}, ...)", found, both)


def _tags(model: Model) -> set[tuple[str, str]]:
    return {tag for tags in model.tags.values() for tag in tags.items()}


def _compare_messages(store: Store, model: Model, names: list[str], limit: int) -> None:
    found = read_all(store.pending, limit)
    groups = [name for name, _ in groupby(found, key=lambda row: row.execution)]
    assert len(groups) == len(set(groups)), f"pending() mixes executions: {groups}"  # noqa: S101 - a failed check
    for name in names:
        mine = [row for row in model.messages if row.execution == name]
        _same(f"pending(), as to {name!r}", [row for row in found if row.execution == name], mine)
        _same(f"pending({name!r})", read_all(store.pending, limit, execution=name), mine)
        if mine:
            after = store.pending(execution=name, after=mine[0].id).rows
            _same(f"pending({name!r}, after={mine[0].id!r})", after, mine[1:])
    assert len(found) == len(model.messages), "pending() returned messages that were never stored"  # noqa: S101 - a failed check
    kinds = {row.kind for row in model.executions.values()}
    for kind in kinds:
        of_kind = read_all(store.pending, limit, kind=kind)
        wanted = [row for row in found if _kind(model, row.execution) == kind]
        _same(f"pending(kind={kind!r})", sorted(of_kind), sorted(wanted))


def _kind(model: Model, name: str) -> str | None:
    return model.executions[name].kind if name in model.executions else None


def _compare_timers(store: Store, model: Model, names: list[str], limit: int) -> None:
    timers = sorted(model.timers.values(), key=lambda row: row.due)
    found = store.due(1_000)
    _same("due(), their order", [row.due for row in found], [row.due for row in timers])
    _same("due()", Counter(found), Counter(timers))
    first = store.due(limit)
    _same(f"due({limit})", [row.due for row in first], [row.due for row in timers[:limit]])
    for name in names:
        mine = [row for row in timers if row.execution == name]
        own = store.due(1_000, execution=name)
        _same(f"due(execution={name!r})", Counter(own), Counter(mine))
        _same("due(), their order", [row.due for row in own], [row.due for row in mine])


def _compare_tasks(store: Store, model: Model, names: list[str], limit: int) -> None:
    tasks = list(model.tasks.values())
    _same("open()", read_all(store.open, limit), tasks)
    for name in names:
        mine = [row for row in tasks if row.execution == name]
        _same(f"open(execution={name!r})", read_all(store.open, limit, execution=name), mine)
    for tasker in {row.tasker for row in tasks}:
        wanted = [row for row in tasks if row.tasker == tasker]
        _same(f"open(tasker={tasker!r})", read_all(store.open, limit, tasker=tasker), wanted)
        both = [row for row in wanted if row.execution == names[0]]
        found = read_all(store.open, limit, tasker=tasker, execution=names[0])
        _same(f"open(tasker={tasker!r}, execution={names[0]!r})", found, both)
    for row in tasks:
        _same(f"task({row.id!r})", store.task(row.id), row)
    _same("task('nothing')", store.task("nothing"), None)


def _compare_letters(store: Store, model: Model, names: list[str], limit: int) -> None:
    found = read_all(store.dead, limit)
    assert len(found) == len(model.dead), f"dead() returned {found} and not {model.dead}"  # noqa: S101 - a failed check
    for number, (row, expected) in enumerate(zip(found, model.dead, strict=True)):
        if expected.id is None:  # it was not stored, and has got a new one
            assert row.id not in model.used, f"the id {row.id!r} of a dead letter was used before"  # noqa: S101 - a failed check
            model.used[row.id] = None
            model.dead[number] = expected._replace(id=row.id)
    _same("dead()", found, model.dead)
    for row in found:
        _same(f"dead_letter({row.id!r})", store.dead_letter(row.id), row)
    for name in names:
        mine = [row for row in model.dead if row.execution == name]
        _same(f"dead({name!r})", read_all(store.dead, limit, execution=name), mine)
