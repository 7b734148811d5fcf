"""The statements that write a plan. Each takes columns of rows, so one does for any number.

Those that rely on something end in `must`, which ends the transaction if it is not so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.cluster.postgres.writing.arrays import Blobs, Booleans, Floats, Longs, Texts
from actorflow.engine.stores.protocol import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from actorflow.cluster.postgres.writing.planning import Plan

__all__ = ["MESSAGES", "SESSION", "Mark", "column_list", "statements"]


def _settings(*, local: str) -> str:
    """Return what makes a plan once, and well, for arrays of rows of any length.

    Tables that were never analysed would be scanned, and a plan that does so is kept. To join with
    arrays of any length is no reason to plan each commit anew.
    """
    values = {
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "plan_cache_mode": "force_generic_plan",
    }
    calls = [f"set_config('{name}', '{value}', {local})" for name, value in values.items()]
    return f"SELECT {', '.join(calls)}"


SESSION = _settings(local="false")
"""Sets what a connection needs, once."""
_TRANSACTION = _settings(local="true")
_MARK = """
WITH noted AS (
  UPDATE {s}.sessions SET last = %s, seen = clock_timestamp()
  WHERE id = %s AND incarnation = %s RETURNING 1
) SELECT {s}.must(count(*) = 1) FROM noted
"""
_EPOCHS = """
SELECT {s}.must(count(*) = %s) FROM (
  SELECT 1 FROM {s}.epochs AS p
  JOIN unnest(%s, %s) AS v (number, epoch) ON p.number = v.number AND p.epoch = v.epoch
  FOR SHARE OF p
) AS held
"""
_STATES = """
  SELECT id, kind, revision, status, state, version, result, error, parent, created, updated,
    CASE WHEN status IN ('done', 'cancelled') THEN updated END, partition, false
  FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
    AS v (id, kind, revision, status, state, version, result, error, parent, created, updated,
      partition)
"""
_INSERT = """
WITH made AS (
  INSERT INTO {s}.executions {states} ON CONFLICT (id) DO NOTHING RETURNING 1
) SELECT {s}.must(count(*) = %s) FROM made
""".replace("{states}", _STATES)
_UPSERT = """
WITH made AS (
  INSERT INTO {s}.executions AS e {states} ON CONFLICT (id) DO UPDATE
  SET revision = excluded.revision, status = excluded.status,
    state = excluded.state, version = excluded.version, result = excluded.result,
    error = excluded.error, updated = excluded.updated, ended = excluded.ended
  WHERE e.revision = 0 RETURNING 1
) SELECT {s}.must(count(*) = %s) FROM made
""".replace("{states}", _STATES)
_ENSURE = """
INSERT INTO {s}.executions
SELECT id, kind, 0, 'active', NULL, 1, NULL, NULL, parent, at, at, NULL, partition, false
FROM unnest(%s, %s, %s, %s, %s) AS v (id, kind, parent, at, partition)
ON CONFLICT (id) DO NOTHING
"""
_UPDATE = """
WITH made AS (
  UPDATE {s}.executions AS e SET revision = v.revision, status = v.status, state = v.state,
    version = v.version, result = v.result, error = v.error, updated = v.updated,
    ended = CASE WHEN v.status IN ('done', 'cancelled') THEN v.updated END, grown = false
  FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s)
    AS v (id, expected, revision, status, state, version, result, error, updated)
  WHERE e.id = v.id AND e.revision = v.expected RETURNING e.id
), trimmed AS (
  DELETE FROM {s}.parts AS p USING made WHERE p.execution = made.id
) SELECT {s}.must(count(*) = %s) FROM made
"""
_APPEND = """
WITH made AS (
  UPDATE {s}.executions AS e SET revision = v.revision, status = v.status, version = v.version,
    result = v.result, error = v.error, updated = v.updated,
    ended = CASE WHEN v.status IN ('done', 'cancelled') THEN v.updated END, grown = true
  FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s)
    AS v (id, expected, revision, status, version, result, error, updated)
  WHERE e.id = v.id AND e.revision = v.expected RETURNING 1
) SELECT {s}.must(count(*) = %s) FROM made
"""
_PARTS = "INSERT INTO {s}.parts (execution, revision, body) SELECT * FROM unnest(%s, %s, %s)"
_NO_TAGS = """
DELETE FROM {s}.tags AS t USING unnest(%s) AS v (execution) WHERE t.execution = v.execution
"""
_TAGS = "INSERT INTO {s}.tags (execution, name, value) SELECT * FROM unnest(%s, %s, %s)"
_KINDS = """
SELECT {s}.must(count(*) = %s) FROM {s}.executions AS e
JOIN unnest(%s, %s) AS v (id, kind) ON e.id = v.id AND e.kind = v.kind
"""
_ATTEMPTED = """
UPDATE {s}.messages AS m SET attempts = m.attempts + v.times
FROM unnest(%s, %s, %s, %s) AS v (partition, execution, id, times)
WHERE m.partition = v.partition AND m.execution = v.execution AND m.id = v.id
"""
_CONSUMED = """
DELETE FROM {s}.messages AS m USING unnest(%s, %s, %s) AS v (partition, execution, id)
WHERE m.partition = v.partition AND m.execution = v.execution AND m.id = v.id
"""
MESSAGES = """
WITH v AS MATERIALIZED (
  SELECT nextval('{s}.ids') AS id, x.* FROM (
    SELECT * FROM unnest(%s, %s, %s, %s, %s, %s) WITH ORDINALITY
      AS u (partition, execution, type, body, at, key, place)
    ORDER BY place
  ) AS x
), stored AS (
  INSERT INTO {s}.messages (partition, execution, id, type, body, at, attempts)
  SELECT partition, execution, id, type, body, at, 0 FROM v
), used AS (
  INSERT INTO {s}.keys SELECT execution, key, id, at FROM v WHERE key IS NOT NULL
), noted AS (
  UPDATE {s}.sessions SET last = %s, seen = clock_timestamp(),
    ids = (SELECT array_agg(id ORDER BY place) FROM v)
  WHERE id = %s AND incarnation = %s RETURNING 1
), held AS MATERIALIZED (
  SELECT {s}.must(count(*) = %s) FROM noted
)
SELECT v.id FROM held, v ORDER BY place
"""
"""Returns the ids of the new messages, which are noted in the session with the mark."""
_FIRED = """
WITH gone AS (
  DELETE FROM {s}.timers AS t USING unnest(%s, %s, %s, %s) AS v (partition, execution, id, due)
  WHERE t.partition = v.partition AND t.execution = v.execution AND t.id = v.id AND t.due = v.due
  RETURNING 1
) SELECT {s}.must(count(*) = %s) FROM gone
"""
_ANSWERED = """
WITH gone AS (
  DELETE FROM {s}.tasks AS t USING unnest(%s) AS v (id) WHERE t.id = v.id RETURNING 1
) SELECT {s}.must(count(*) = %s) FROM gone
"""
_CLEAR_TIMERS = """
DELETE FROM {s}.timers AS t USING unnest(%s, %s) AS v (partition, execution)
WHERE t.partition = v.partition AND t.execution = v.execution
"""
_CLEAR_TASKS = """
DELETE FROM {s}.tasks AS t USING unnest(%s) AS v (execution) WHERE t.execution = v.execution
"""
_CLEAR_WATCHES = """
DELETE FROM {s}.watches AS t USING unnest(%s) AS v (execution) WHERE t.execution = v.execution
"""
_CANCELLED_TIMERS = """
DELETE FROM {s}.timers AS t USING unnest(%s, %s, %s) AS v (partition, execution, id)
WHERE t.partition = v.partition AND t.execution = v.execution AND t.id = v.id
"""
_TIMERS = """
INSERT INTO {s}.timers (partition, execution, id, due, body)
SELECT * FROM unnest(%s, %s, %s, %s, %s)
ON CONFLICT (partition, execution, id) DO UPDATE SET due = excluded.due, body = excluded.body
"""
_RETRIED = """
UPDATE {s}.tasks AS t SET attempts = v.attempts, due = v.due, worker = v.worker
FROM unnest(%s, %s, %s, %s) AS v (id, attempts, due, worker) WHERE t.id = v.id
"""
_FINISHED = "DELETE FROM {s}.tasks AS t USING unnest(%s) AS v (id) WHERE t.id = v.id"
_TASKS = """
INSERT INTO {s}.tasks (id, execution, tasker, body, attempts, due, timeout, retries, priority,
  tell_start, worker, partition)
SELECT id, execution, tasker, body, attempts, due, timeout, retries, priority, tell_start, worker,
  partition
FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) WITH ORDINALITY
  AS v (id, execution, tasker, body, attempts, due, timeout, retries, priority, tell_start,
    worker, partition, place)
ORDER BY place
"""
_CANCELLED_WATCHES = """
DELETE FROM {s}.watches AS t USING unnest(%s, %s) AS v (execution, id)
WHERE t.execution = v.execution AND t.id = v.id
"""
_WATCHES = """
INSERT INTO {s}.watches (execution, id, kind, body) SELECT * FROM unnest(%s, %s, %s, %s)
ON CONFLICT (execution, id) DO UPDATE SET kind = excluded.kind, body = excluded.body
"""
_HISTORY = """
INSERT INTO {s}.history (execution, at, body)
SELECT execution, at, body FROM unnest(%s, %s, %s) WITH ORDINALITY AS v (execution, at, body, place)
ORDER BY place
"""
_REMOVED_DEAD = "DELETE FROM {s}.dead AS t USING unnest(%s) AS v (id) WHERE t.id = v.id"
_DEAD = """
INSERT INTO {s}.dead (number, id, execution, type, body, error, at)
SELECT number, coalesce(id, number), execution, type, body, error, at FROM (
  SELECT nextval('{s}.ids') AS number, x.* FROM (
    SELECT * FROM unnest(%s, %s, %s, %s, %s, %s) WITH ORDINALITY
      AS u (id, execution, type, body, error, at, place)
    ORDER BY place
  ) AS x
) AS v
"""


def column_list(
    rows: Sequence[Sequence[Any]], *columns: Callable[[Iterable[Any]], Any]
) -> list[Any]:
    """Return rows as columns, each made by its class."""
    return [make(values) for make, values in zip(columns, zip(*rows, strict=True), strict=True)]


class Mark(NamedTuple):
    """The number of a commit, and the session and incarnation that make it."""

    number: int
    session: Any
    incarnation: int


_UNMARKED = (0, None, 0)


def statements(
    plan: Plan, partitions: int, mark: Mark | None, *, pooled: bool = False
) -> Iterator[tuple[str, list[Any]]]:
    """Yield the statements that write a plan, with their parameters, in their order.

    `mark` is left in the row of its session; a transaction of the user's has none. A `pooled`
    connection is another one for each transaction, so that each has to set what it needs.
    """
    if pooled:
        yield _TRANSACTION, []
    if mark is not None and not plan.messages:
        yield _MARK, [*mark]
    yield from _write_executions(plan, partitions)
    yield from _remove(plan, partitions)
    yield from _add(plan, partitions)
    if plan.messages:
        rows = [
            (partition_of(m.execution, partitions), m.execution, m.type, m.body, out.at, m.key)
            for out in plan.messages
            for m in (out.message,)
        ]
        columns = column_list(rows, Longs, Texts, Texts, Blobs, Floats, Texts)
        yield MESSAGES, [*columns, *(mark or _UNMARKED), 0 if mark is None else 1]


_STATE_COLUMNS = (
    Texts, Texts, Longs, Texts, Blobs, Longs, Blobs, Blobs, Texts, Floats, Floats, Longs,
)  # fmt: skip


class _Sorted:
    """The executions of a plan, by how each is written."""

    def __init__(self, plan: Plan, partitions: int) -> None:
        self.inserted: list[tuple[Any, ...]] = []
        self.upserted: list[tuple[Any, ...]] = []
        self.updated: list[tuple[Any, ...]] = []
        self.appended: list[tuple[Any, ...]] = []
        self.parts: list[tuple[Any, ...]] = []
        self.ensured: list[tuple[Any, ...]] = []
        for name, found in sorted(plan.executions.items()):
            new, written = found.new, found.written
            if written is not None and (new is None or (found.expected and not found.strict)):
                if found.parts is None:
                    self.updated.append((name, found.expected, *written))
                else:
                    self.appended.append((name, found.expected, *written[:2], *written[3:]))
                    self.parts += found.parts
            elif new is not None:
                partition = partition_of(name, partitions)
                if written is None and not found.strict:
                    self.ensured.append((name, new.kind, new.parent, found.at, partition))
                    continue
                state = written or (0, "active", None, 1, None, None, found.at)
                row = (name, new.kind, *state[:6], new.parent, found.at, state[6], partition)
                (self.inserted if found.strict else self.upserted).append(row)


def _write_executions(plan: Plan, partitions: int) -> Iterator[tuple[str, list[Any]]]:
    if plan.epochs:
        held = sorted(plan.epochs.items())
        yield _EPOCHS, [len(held), *column_list(held, Longs, Longs)]
    rows = _Sorted(plan, partitions)
    if rows.inserted:
        yield _INSERT, [*column_list(rows.inserted, *_STATE_COLUMNS), len(rows.inserted)]
    if rows.upserted:
        yield _UPSERT, [*column_list(rows.upserted, *_STATE_COLUMNS), len(rows.upserted)]
    if rows.updated:
        columns = (Texts, Longs, Longs, Texts, Blobs, Longs, Blobs, Blobs, Floats)
        yield _UPDATE, [*column_list(rows.updated, *columns), len(rows.updated)]
    if rows.appended:
        fewer = (Texts, Longs, Longs, Texts, Longs, Blobs, Blobs, Floats)
        yield _APPEND, [*column_list(rows.appended, *fewer), len(rows.appended)]
        yield _PARTS, column_list(rows.parts, Texts, Longs, Blobs)
    if rows.ensured:
        yield _ENSURE, column_list(rows.ensured, Texts, Texts, Texts, Floats, Longs)
    if plan.kinds:
        kinds = sorted(plan.kinds.items())
        yield _KINDS, [len(kinds), *column_list(kinds, Texts, Texts)]


def _remove(plan: Plan, partitions: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield what removes rows, those first that must be there."""

    def placed(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return [(partition_of(row[0], partitions), *row) for row in rows]

    if plan.attempted:
        times: dict[tuple[str, Any], int] = {}
        for each in plan.attempted:
            times[each] = times.get(each, 0) + 1
        rows = placed((*each, count) for each, count in times.items())
        yield _ATTEMPTED, column_list(rows, Longs, Texts, Longs, Longs)
    if plan.retried:
        again = [(task.id, task.attempts, task.due, task.worker) for task in plan.retried.values()]
        yield _RETRIED, column_list(again, Texts, Longs, Floats, Texts)
    if plan.fired:
        rows = placed((*key, due) for key, due in plan.fired.items())
        yield _FIRED, [*column_list(rows, Longs, Texts, Texts, Floats), len(rows)]
    if plan.answered:
        yield _ANSWERED, [Texts(list(plan.answered)), len(plan.answered)]
    yield from _remove_more(plan, placed)


def _remove_more(
    plan: Plan, placed: Callable[[Iterable[tuple[Any, ...]]], list[tuple[Any, ...]]]
) -> Iterator[tuple[str, list[Any]]]:
    """Yield what removes rows that need not be there."""
    if plan.cleared:
        names = list(plan.cleared)
        yield _CLEAR_TIMERS, column_list(placed((name,) for name in names), Longs, Texts)
        yield _CLEAR_TASKS, [Texts(names)]
        yield _CLEAR_WATCHES, [Texts(names)]
    if plan.consumed:
        yield _CONSUMED, column_list(placed(plan.consumed), Longs, Texts, Longs)
    if plan.cancelled_timers:
        rows = placed(plan.cancelled_timers)
        yield _CANCELLED_TIMERS, column_list(rows, Longs, Texts, Texts)
    if plan.finished_tasks:
        yield _FINISHED, [Texts(list(plan.finished_tasks))]
    if plan.cancelled_watches:
        yield _CANCELLED_WATCHES, column_list(list(plan.cancelled_watches), Texts, Texts)
    if plan.removed_dead:
        yield _REMOVED_DEAD, [Longs(list(plan.removed_dead))]


def _add(plan: Plan, partitions: int) -> Iterator[tuple[str, list[Any]]]:
    if plan.timers:
        rows = [
            (partition_of(timer.execution, partitions), *timer) for timer in plan.timers.values()
        ]
        yield _TIMERS, column_list(rows, Longs, Texts, Texts, Floats, Blobs)
    if plan.tasks:
        tasks = [(*task, partition_of(task.execution, partitions)) for task in plan.tasks.values()]
        columns = (
            Texts, Texts, Texts, Blobs, Longs, Floats, Floats, Longs, Longs, Booleans, Texts,
            Longs,
        )  # fmt: skip
        yield _TASKS, column_list(tasks, *columns)
    if plan.watches:
        yield _WATCHES, column_list(list(plan.watches.values()), Texts, Texts, Texts, Blobs)
    if plan.tags:
        yield _NO_TAGS, [Texts(list(plan.tags))]
        tags = [(name, *tag) for name, tags in plan.tags.items() for tag in tags.items()]
        if tags:
            yield _TAGS, column_list(tags, Texts, Texts, Texts)
    if plan.history:
        yield _HISTORY, column_list(plan.history, Texts, Floats, Blobs)
    if plan.dead:
        letters = [(*letter, at) for letter, at in plan.dead.values()]
        yield _DEAD, column_list(letters, Longs, Texts, Texts, Blobs, Texts, Floats)
