"""The SQL statements that write a `CommitPlan` to Postgres.

Each takes rows, so that one statement writes any number of them. A statement with a precondition
calls the SQL function `must`, which ends the transaction if the precondition does not hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.engine.stores.postgres.writing.rows import Statement
from actorflow.engine.stores.protocol import partition_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from actorflow.cluster.ring import JournalEntry
    from actorflow.engine.stores.postgres.writing.commit_plan import CommitPlan
    from actorflow.engine.stores.postgres.writing.rows import Fill, Filled

__all__ = ["SESSION", "STORING", "Mark", "statements"]


def _settings(*, local: str) -> str:
    """Return the statement that makes Postgres plan each statement once, and use the indexes.

    Without it, Postgres would scan tables that were never analysed, and keep that query plan. A
    generic plan also saves planning each commit again because its arrays have another length.
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
"""Prepares a new connection."""
_TRANSACTION = _settings(local="true")
_MARK = """
WITH noted AS (
  UPDATE {s}.sessions SET last = %s, seen = clock_timestamp()
  WHERE id = %s AND incarnation = %s RETURNING 1
) SELECT {s}.must(count(*) = 1) FROM noted
"""
_EPOCHS = Statement("""
WITH held AS (
  SELECT 1 FROM {s}.epochs AS p
  JOIN {rows: bigint, bigint} AS v (number, epoch) ON p.number = v.number AND p.epoch = v.epoch
  FOR SHARE OF p
) SELECT {s}.must(count(*) = %s) FROM held
""")
_NOTE = Statement("""
INSERT INTO {s}.journal SELECT v.partition, v.epoch, v.member
FROM {rows: bigint, bigint, text} AS v (partition, epoch, member) ON CONFLICT DO NOTHING
""")
_STATES = """
  SELECT id, kind, revision, status, state, version, result, error, parent, created, updated,
    CASE WHEN status IN ('done', 'failed', 'cancelled') THEN updated END, partition, false
  FROM {rows: text, text, bigint, text, bytea, bigint, bytea, bytea, text, float8, float8, bigint}
    AS v (id, kind, revision, status, state, version, result, error, parent, created, updated,
      partition)
"""
_INSERT = Statement(
    """
WITH made AS (
  INSERT INTO {s}.executions {states} ON CONFLICT (id) DO NOTHING RETURNING 1
) SELECT {s}.must(count(*) = %s) FROM made
""".replace("{states}", _STATES)
)
_UPSERT = Statement(
    """
WITH made AS (
  INSERT INTO {s}.executions AS e {states} ON CONFLICT (id) DO UPDATE
  SET revision = excluded.revision, status = excluded.status,
    state = excluded.state, version = excluded.version, result = excluded.result,
    error = excluded.error, updated = excluded.updated, ended = excluded.ended
  WHERE e.revision = 0 RETURNING 1
) SELECT {s}.must(count(*) = %s) FROM made
""".replace("{states}", _STATES)
)
_ENSURE = Statement("""
INSERT INTO {s}.executions
SELECT id, kind, 0, 'active', NULL, 1, NULL, NULL, parent, at, at, NULL, partition, false
FROM {rows: text, text, text, float8, bigint} AS v (id, kind, parent, at, partition)
ON CONFLICT (id) DO NOTHING
""")
_UPDATE = Statement("""
WITH made AS (
  UPDATE {s}.executions AS e SET revision = v.revision, status = v.status, state = v.state,
    version = v.version, result = v.result, error = v.error, updated = v.updated,
    ended = CASE WHEN v.status IN ('done', 'failed', 'cancelled') THEN v.updated END, grown = false
  FROM {rows: text, bigint, bigint, text, bytea, bigint, bytea, bytea, float8}
    AS v (id, expected, revision, status, state, version, result, error, updated)
  WHERE e.id = v.id AND e.revision = v.expected RETURNING e.id
), trimmed AS (
  DELETE FROM {s}.parts AS p USING made WHERE p.execution = made.id
) SELECT {s}.must(count(*) = %s) FROM made
""")
_APPEND = Statement("""
WITH made AS (
  UPDATE {s}.executions AS e SET revision = v.revision, status = v.status, version = v.version,
    result = v.result, error = v.error, updated = v.updated,
    ended = CASE WHEN v.status IN ('done', 'failed', 'cancelled') THEN v.updated END, grown = true
  FROM {rows: text, bigint, bigint, text, bigint, bytea, bytea, float8}
    AS v (id, expected, revision, status, version, result, error, updated)
  WHERE e.id = v.id AND e.revision = v.expected RETURNING 1
) SELECT {s}.must(count(*) = %s) FROM made
""")
_PARTS = Statement("""
INSERT INTO {s}.parts (execution, revision, body)
SELECT * FROM {rows: text, bigint, bytea} AS v
""")
_NO_TAGS = Statement("""
DELETE FROM {s}.tags AS t USING {rows: text} AS v (execution) WHERE t.execution = v.execution
""")
_TAGS = Statement(
    "INSERT INTO {s}.tags (execution, name, value) SELECT * FROM {rows: text, text, text} AS v"
)
_KINDS = Statement("""
WITH found AS (
  SELECT 1 FROM {s}.executions AS e
  JOIN {rows: text, text} AS v (id, kind) ON e.id = v.id AND e.kind = v.kind
) SELECT {s}.must(count(*) = %s) FROM found
""")
_ATTEMPTED = Statement("""
UPDATE {s}.messages AS m SET attempts = m.attempts + v.times
FROM {rows: bigint, text, bigint, bigint} AS v (partition, execution, id, times)
WHERE m.partition = v.partition AND m.execution = v.execution AND m.id = v.id
""")
_CONSUMED = Statement("""
DELETE FROM {s}.messages AS m USING {rows: bigint, text, bigint} AS v (partition, execution, id)
WHERE m.partition = v.partition AND m.execution = v.execution AND m.id = v.id
""")
_STORE = """
WITH v AS MATERIALIZED (
  SELECT nextval('{s}.ids') AS id, x.* FROM (
    SELECT * FROM {ordered: bigint, text, text, bytea, float8{text}}
      AS u (partition, execution, type, body, at, {key}place)
    ORDER BY place
  ) AS x
), stored AS (
  INSERT INTO {s}.messages (partition, execution, id, type, body, at, attempts)
  SELECT partition, execution, id, type, body, at, 0 FROM v
), {used}noted AS (
  UPDATE {s}.sessions SET last = %s, seen = clock_timestamp(),
    ids = (SELECT array_agg(id ORDER BY place) FROM v)
  WHERE id = %s AND incarnation = %s RETURNING 1
), held AS MATERIALIZED (
  SELECT {s}.must(count(*) = %s) FROM noted
)
SELECT v.id FROM held, v ORDER BY place
"""
_STORE_ONE = """
WITH stored AS (
  INSERT INTO {s}.messages (partition, execution, id, type, body, at, attempts)
  VALUES (%s, %s, nextval('{s}.ids'), %s, %s, %s, 0) RETURNING id
), noted AS (
  UPDATE {s}.sessions SET last = %s, seen = clock_timestamp(),
    ids = ARRAY[(SELECT id FROM stored)]
  WHERE id = %s AND incarnation = %s RETURNING 1
)
SELECT id, {s}.must((SELECT count(*) FROM noted) = %s) FROM stored
"""
_MESSAGES = Statement(
    _STORE.replace("{text}", "").replace("{key}", "").replace("{used}", ""), single=_STORE_ONE
)
_USED = """used AS (
  INSERT INTO {s}.keys SELECT execution, key, id, at FROM v WHERE key IS NOT NULL
), """
_MESSAGES_WITH_KEYS = Statement(
    _STORE.replace("{text}", ", text").replace("{key}", "key, ").replace("{used}", _USED)
)
STORING = frozenset(
    text for each in (_MESSAGES, _MESSAGES_WITH_KEYS) for text in (each.single, each.many)
)
"""Texts that return the ids of the new messages, which are noted in the session with the mark."""
_FIRED = Statement("""
WITH gone AS (
  DELETE FROM {s}.timers AS t
  USING {rows: bigint, text, text, float8} AS v (partition, execution, id, due)
  WHERE t.partition = v.partition AND t.execution = v.execution AND t.id = v.id AND t.due = v.due
  RETURNING 1
) SELECT {s}.must(count(*) = %s) FROM gone
""")
_ANSWERED = Statement("""
WITH gone AS (
  DELETE FROM {s}.tasks AS t USING {rows: text} AS v (id) WHERE t.id = v.id RETURNING 1
) SELECT {s}.must(count(*) = %s) FROM gone
""")
_CLEAR_TIMERS = Statement("""
DELETE FROM {s}.timers AS t USING {rows: bigint, text} AS v (partition, execution)
WHERE t.partition = v.partition AND t.execution = v.execution
""")
_CLEAR_TASKS = Statement("""
DELETE FROM {s}.tasks AS t USING {rows: text} AS v (execution) WHERE t.execution = v.execution
""")
_CLEAR_WATCHES = Statement("""
DELETE FROM {s}.watches AS t USING {rows: text} AS v (execution) WHERE t.execution = v.execution
""")
_CANCELLED_TIMERS = Statement("""
DELETE FROM {s}.timers AS t USING {rows: bigint, text, text} AS v (partition, execution, id)
WHERE t.partition = v.partition AND t.execution = v.execution AND t.id = v.id
""")
_TIMERS = Statement("""
INSERT INTO {s}.timers (partition, execution, id, due, body)
SELECT * FROM {rows: bigint, text, text, float8, bytea} AS v
ON CONFLICT (partition, execution, id) DO UPDATE SET due = excluded.due, body = excluded.body
""")
_RETRIED = Statement("""
UPDATE {s}.tasks AS t
SET body = v.body, attempts = v.attempts, due = v.due, worker = v.worker
FROM {rows: text, bytea, bigint, float8, text} AS v (id, body, attempts, due, worker)
WHERE t.id = v.id
""")
_FINISHED = Statement("DELETE FROM {s}.tasks AS t USING {rows: text} AS v (id) WHERE t.id = v.id")
_TASKS = Statement("""
INSERT INTO {s}.tasks (id, execution, tasker, body, attempts, due, timeout, retries, priority,
  tell_start, worker, partition)
SELECT id, execution, tasker, body, attempts, due, timeout, retries, priority, tell_start, worker,
  partition
FROM {ordered: text, text, text, bytea, bigint, float8, float8, bigint, bigint, boolean, text,
  bigint} AS v (id, execution, tasker, body, attempts, due, timeout, retries, priority, tell_start,
    worker, partition, place)
ORDER BY place
""")
_CANCELLED_WATCHES = Statement("""
DELETE FROM {s}.watches AS t USING {rows: text, text} AS v (execution, id)
WHERE t.execution = v.execution AND t.id = v.id
""")
_WATCHES = Statement("""
INSERT INTO {s}.watches (execution, id, kind, body)
SELECT * FROM {rows: text, text, text, bytea} AS v
ON CONFLICT (execution, id) DO UPDATE SET kind = excluded.kind, body = excluded.body
""")
_HISTORY = Statement("""
INSERT INTO {s}.history (execution, at, body)
SELECT execution, at, body FROM {ordered: text, float8, bytea} AS v (execution, at, body, place)
ORDER BY place
""")
_REMOVED_DEAD = Statement(
    "DELETE FROM {s}.dead AS t USING {rows: bigint} AS v (id) WHERE t.id = v.id"
)
_DEAD = Statement("""
INSERT INTO {s}.dead (number, id, execution, type, body, error, at)
SELECT number, coalesce(id, number), execution, type, body, error, at FROM (
  SELECT nextval('{s}.ids') AS number, x.* FROM (
    SELECT * FROM {ordered: bigint, text, text, bytea, text, float8}
      AS u (id, execution, type, body, error, at, place)
    ORDER BY place
  ) AS x
) AS v
""")


class Mark(NamedTuple):
    """The number of a commit, and the session and incarnation that make it."""

    number: int
    session: Any
    incarnation: int


_UNMARKED = (0, None, 0)


def statements(
    plan: CommitPlan,
    partitions: int,
    mark: Mark | None,
    *,
    fill: Fill,
    pooled: bool = False,
    begun: Sequence[JournalEntry] = (),
) -> Iterator[Filled]:
    """Yield the statements that write a plan, with their parameters, in their order.

    `mark` is left in the row of its session; a transaction of a user has none. `fill` puts rows
    into statements. A `pooled` connection is another one for each transaction, so that each has to
    set what it needs. `begun` are the epochs in which this is the first commit of its member.
    """
    if pooled:
        yield _TRANSACTION, []
    if mark is not None and not plan.messages:
        yield _MARK, [*mark]
    yield from _write_executions(plan, partitions, fill)
    if begun:
        yield fill(_NOTE, begun)
    yield from _remove(plan, partitions, fill)
    yield from _add(plan, partitions, fill)
    if plan.messages:
        more = *(mark or _UNMARKED), 0 if mark is None else 1
        rows = [
            (partition_of(m.execution, partitions), m.execution, m.type, m.body, out.at, m.key)
            for out in plan.messages
            for m in (out.message,)
        ]
        if all(row[5] is None for row in rows):
            yield fill(_MESSAGES, [row[:5] for row in rows], *more)
        else:
            yield fill(_MESSAGES_WITH_KEYS, rows, *more)


class _Sorted:
    """The executions of a plan, by how each is written."""

    def __init__(self, plan: CommitPlan, partitions: int) -> None:
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


def _write_executions(plan: CommitPlan, partitions: int, fill: Fill) -> Iterator[Filled]:
    if plan.epochs:
        held = sorted(plan.epochs.items())
        yield fill(_EPOCHS, held, len(held))
    rows = _Sorted(plan, partitions)
    if rows.inserted:
        yield fill(_INSERT, rows.inserted, len(rows.inserted))
    if rows.upserted:
        yield fill(_UPSERT, rows.upserted, len(rows.upserted))
    if rows.updated:
        yield fill(_UPDATE, rows.updated, len(rows.updated))
    if rows.appended:
        yield fill(_APPEND, rows.appended, len(rows.appended))
        yield fill(_PARTS, rows.parts)
    if rows.ensured:
        yield fill(_ENSURE, rows.ensured)
    if plan.kinds:
        kinds = sorted(plan.kinds.items())
        yield fill(_KINDS, kinds, len(kinds))


def _remove(plan: CommitPlan, partitions: int, fill: Fill) -> Iterator[Filled]:
    """Yield what removes rows, those first that must be there."""

    def placed(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return [(partition_of(row[0], partitions), *row) for row in rows]

    if plan.attempted:
        times: dict[tuple[str, Any], int] = {}
        for each in plan.attempted:
            times[each] = times.get(each, 0) + 1
        yield fill(_ATTEMPTED, placed((*each, count) for each, count in times.items()))
    if plan.retried:
        again = [
            (task.id, task.body, task.attempts, task.due, task.worker)
            for task in plan.retried.values()
        ]
        yield fill(_RETRIED, again)
    if plan.fired:
        rows = placed((*key, due) for key, due in plan.fired.items())
        yield fill(_FIRED, rows, len(rows))
    if plan.answered:
        yield fill(_ANSWERED, _alone(plan.answered), len(plan.answered))
    if plan.consumed:
        yield fill(_CONSUMED, placed(plan.consumed))
    if plan.cancelled_timers:
        yield fill(_CANCELLED_TIMERS, placed(plan.cancelled_timers))
    if plan.cleared:
        yield fill(_CLEAR_TIMERS, placed(_alone(plan.cleared)))
    yield from _remove_more(plan, fill)


def _remove_more(plan: CommitPlan, fill: Fill) -> Iterator[Filled]:
    """Yield what removes rows from tables that are not divided into partitions."""
    if plan.cleared:
        yield fill(_CLEAR_TASKS, _alone(plan.cleared))
        yield fill(_CLEAR_WATCHES, _alone(plan.cleared))
    if plan.finished_tasks:
        yield fill(_FINISHED, _alone(plan.finished_tasks))
    if plan.cancelled_watches:
        yield fill(_CANCELLED_WATCHES, list(plan.cancelled_watches))
    if plan.removed_dead:
        yield fill(_REMOVED_DEAD, _alone(plan.removed_dead))


def _alone(values: Iterable[Any]) -> list[tuple[Any]]:
    """Return rows of one value each."""
    return [(value,) for value in values]


def _add(plan: CommitPlan, partitions: int, fill: Fill) -> Iterator[Filled]:
    if plan.timers:
        rows = [
            (partition_of(timer.execution, partitions), *timer) for timer in plan.timers.values()
        ]
        yield fill(_TIMERS, rows)
    if plan.tasks:
        tasks = [(*task, partition_of(task.execution, partitions)) for task in plan.tasks.values()]
        yield fill(_TASKS, tasks)
    if plan.watches:
        yield fill(_WATCHES, list(plan.watches.values()))
    if plan.tags:
        yield fill(_NO_TAGS, _alone(plan.tags))
        tags = [(name, *tag) for name, tags in plan.tags.items() for tag in tags.items()]
        if tags:
            yield fill(_TAGS, tags)
    if plan.history:
        yield fill(_HISTORY, plan.history)
    if plan.dead:
        yield fill(_DEAD, [(*letter, at) for letter, at in plan.dead.values()])
