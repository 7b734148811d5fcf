"""What a supervisor is told about its children: `Child`, `Flags` and `Backoff`.

All three are frozen and validated once, when built: a mistake shows in the line that makes it.
They are stricter than OTP's maps, where an unknown key is ignored: here it is a `TypeError`,
as for every Python function that gets a keyword it does not know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

from actorflow.runtime.errors import ActorflowError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = [
    "AutoShutdown",
    "Backoff",
    "BadChild",
    "BadFlags",
    "Child",
    "ChildType",
    "Flags",
    "Grace",
    "RestartType",
    "Strategy",
]

Grace: TypeAlias = float | Literal["brutal_kill"]
"""How a child is stopped: seconds to obey (`math.inf`: no limit), or killed at once."""


class BadChild(ActorflowError, ValueError):
    """A child specification cannot work; the message shows one that can."""


class BadFlags(ActorflowError, ValueError):
    """The flags of a supervisor cannot work, or not together; the message shows some that can."""


class RestartType(StrEnum):
    """When a child that ended is started again."""

    PERMANENT = "permanent"
    """Always, also after a clean exit."""
    TRANSIENT = "transient"
    """After a crash or a kill; a clean exit leaves it stopped, still known."""
    TEMPORARY = "temporary"
    """Never; once ended it is forgotten, with its arguments."""


class ChildType(StrEnum):
    """What kind of child it is. Decides the default of `shutdown`, and how it is counted."""

    WORKER = "worker"
    SUPERVISOR = "supervisor"


class Strategy(StrEnum):
    """Who is started again when one child has to be."""

    ONE_FOR_ONE = "one_for_one"
    """That child alone."""
    ONE_FOR_ALL = "one_for_all"
    """All children: they are stopped in reverse order, then started in order."""
    REST_FOR_ONE = "rest_for_one"
    """That child and those started after it, the same way."""
    DYNAMIC = "dynamic"
    """That child alone, among any number known by their refs: OTP's simple_one_for_one."""


class AutoShutdown(StrEnum):
    """Whether the end of significant children ends their supervisor."""

    NEVER = "never"
    ANY_SIGNIFICANT = "any_significant"
    """As soon as one significant child has ended by itself and is not started again."""
    ALL_SIGNIFICANT = "all_significant"
    """When the last one has."""


RestartName: TypeAlias = RestartType | Literal["permanent", "transient", "temporary"]
TypeName: TypeAlias = ChildType | Literal["worker", "supervisor"]
StrategyName: TypeAlias = (
    Strategy | Literal["one_for_one", "one_for_all", "rest_for_one", "dynamic"]
)
AutoShutdownName: TypeAlias = AutoShutdown | Literal["never", "any_significant", "all_significant"]

_Enum = TypeVar("_Enum", bound=StrEnum)


@dataclass(frozen=True, slots=True, init=False)
class Child:
    """How one child is started, restarted and stopped.

    `Child(id, start, *args, kwargs={}, restart=..., shutdown=..., type=..., significant=...)`

    `id` is any hashable value, unique within its supervisor. `start(*args, **kwargs)` runs in the
    supervisor and returns once the child is initialised.

    `restart` is "permanent" (default), "transient" or "temporary": see `RestartType`.

    `shutdown` is the time in seconds that the child gets to stop when asked, before it is killed:
    5.0 for workers and `math.inf` for supervisors unless given; "brutal_kill" does not ask.

    `significant` children may end their supervisor by ending: see `AutoShutdown`. A permanent
    child cannot be significant, because it never stays ended.

    >>> Child("db", dict, "orders.db").shutdown
    5.0
    >>> Child("tree", dict, type="supervisor").shutdown
    inf
    >>> Child("db", dict, restart="sometimes")
    Traceback (most recent call last):
    ...
    actorflow.runtime.supervision.spec.BadChild: restart='sometimes' of child 'db' is not one of
    'permanent', 'transient', 'temporary'; write for example Child('db', start, restart='permanent')
    """

    id: Hashable
    start: Callable[..., Any]
    args: tuple[Any, ...] = field(hash=False)
    kwargs: Mapping[str, Any] = field(hash=False)
    restart: RestartType
    shutdown: Grace
    type: ChildType
    significant: bool

    def __init__(
        self,
        id: Hashable,  # noqa: A002 - the name that OTP and its users know
        start: Callable[..., Any],
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        restart: RestartName = "permanent",
        shutdown: Grace | None = None,
        type: TypeName | None = None,  # noqa: A002 - the same
        significant: bool = False,
    ) -> None:
        _check_identity(id, start, kwargs)
        example = f"Child({id!r}, start, "
        of = f"of child {id!r} "
        restart = _one_of(RestartType, restart, "restart", of=of, example=example, error=BadChild)
        if type is None:
            type = getattr(start, "child_type", ChildType.WORKER)  # noqa: A001 - the same
        kind = _one_of(ChildType, type, "type", of=of, example=example, error=BadChild)
        if not isinstance(significant, bool):
            raise BadChild(
                f"significant={significant!r} of child {id!r} is neither True nor False; "
                f"write {example}restart='transient', significant=True)"
            )
        if significant and restart is RestartType.PERMANENT:
            raise BadChild(
                f"child {id!r} is permanent and cannot be significant: it is always started "
                f"again; write {example}restart='transient', significant=True), or 'temporary'"
            )
        if shutdown is None:
            shutdown = math.inf if kind is ChildType.SUPERVISOR else 5.0
        elif shutdown != "brutal_kill" and not (_is_number(shutdown) and shutdown >= 0):
            raise BadChild(
                f"shutdown={shutdown!r} of child {id!r} is not a number of seconds >= 0, "
                f"math.inf or 'brutal_kill'; write for example {example}shutdown=5.0)"
            )
        put = object.__setattr__
        put(self, "id", id)
        put(self, "start", start)
        put(self, "args", args)
        put(self, "kwargs", dict(kwargs or {}))
        put(self, "restart", restart)
        put(self, "shutdown", shutdown)
        put(self, "type", kind)
        put(self, "significant", significant)

    def with_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Child:
        """Give the same child with these arguments for `start`, and no others. O(arguments)."""
        return Child(
            self.id,
            self.start,
            *args,
            kwargs=kwargs,
            restart=self.restart,
            shutdown=self.shutdown,
            type=self.type,
            significant=self.significant,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before a child is started again: longer with each failure in a row.

    The n-th wait (from 0) is `initial * factor ** n` seconds, at most `maximum`. `jitter` takes a
    random part off: 0.0 nothing, 0.25 up to a quarter, 1.0 up to all of it, so that many children
    that failed together do not come back together.

    >>> backoff = Backoff(initial=0.5, factor=2.0, maximum=30.0, jitter=0.5)
    >>> [backoff.delay(n, 0.0) for n in (0, 1, 2, 10)]
    [0.5, 1.0, 2.0, 30.0]
    >>> backoff.delay(1, 0.5)
    0.75
    """

    initial: float = 0.1
    factor: float = 2.0
    maximum: float = 30.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what would not be a growing, bounded wait."""
        example = "write for example Backoff(initial=0.1, factor=2.0, maximum=30.0, jitter=0.1)"
        for name, low, high in (
            ("initial", 0.0, math.inf),
            ("factor", 1.0, math.inf),
            ("maximum", self.initial, math.inf),
            ("jitter", 0.0, 1.0),
        ):
            value = getattr(self, name)
            if not (_is_number(value) and low <= value <= high and math.isfinite(value)):
                limits = f">= {low}" if high == math.inf else f"between {low} and {high}"
                raise BadFlags(
                    f"{name}={value!r} of a Backoff is not a finite number {limits}; {example}"
                )

    def delay(self, failures: int, draw: float) -> float:
        """Give the seconds to wait after `failures` earlier ones in a row. O(1).

        `draw` is a random number, 0.0 <= draw < 1.0, that the jitter is made of.
        """
        try:
            grown = self.initial * self.factor**failures
        except OverflowError:
            grown = self.maximum
        return min(grown, self.maximum) * (1.0 - self.jitter * draw)


@dataclass(frozen=True, slots=True, init=False)
class Flags:
    """How a supervisor treats its children.

    `strategy`: "one_for_one" (default), "one_for_all", "rest_for_one" or "dynamic".

    `max_restarts` within `within` seconds are made; one more ends the supervisor. 0: the first
    crash does. The default is 3 within 5 s.

    `auto_shutdown`: "never" (default), "any_significant" or "all_significant". Not "dynamic".

    `max_children`: how many children a "dynamic" supervisor may have; None: no limit.

    `backoff`: wait before each restart; None (default): restart at once, as OTP does. Then an
    attempt counts against `max_restarts` when it is made, not when the wait for it begins, so
    a wait longer than `within / max_restarts` means that the limit is never reached.

    >>> Flags(strategy="rest_for_one", max_restarts=-1)
    Traceback (most recent call last):
    ...
    actorflow.runtime.supervision.spec.BadFlags: max_restarts=-1 is not a whole number >= 0;
    write for example max_restarts=3
    """

    strategy: Strategy
    max_restarts: int
    within: float
    auto_shutdown: AutoShutdown
    max_children: int | None
    backoff: Backoff | None

    def __init__(
        self,
        *,
        strategy: StrategyName = "one_for_one",
        max_restarts: int = 3,
        within: float = 5.0,
        auto_shutdown: AutoShutdownName = "never",
        max_children: int | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        example = "Supervisor(children, "
        strategy = _one_of(Strategy, strategy, "strategy", example=example, error=BadFlags)
        auto_shutdown = _one_of(
            AutoShutdown, auto_shutdown, "auto_shutdown", example=example, error=BadFlags
        )
        if not _is_whole(max_restarts):
            raise BadFlags(
                f"max_restarts={max_restarts!r} is not a whole number >= 0; "
                "write for example max_restarts=3"
            )
        if not (_is_number(within) and 0 < within < math.inf):
            raise BadFlags(
                f"within={within!r} is not a number of seconds > 0; write for example within=5.0"
            )
        if max_children is not None and not _is_whole(max_children):
            raise BadFlags(
                f"max_children={max_children!r} is neither a whole number >= 0 nor None; "
                "write for example max_children=1000"
            )
        if max_children is not None and strategy is not Strategy.DYNAMIC:
            raise BadFlags(
                f"max_children={max_children!r} needs strategy='dynamic', not {strategy.value!r}: "
                "other children are listed one by one; leave max_children out"
            )
        if auto_shutdown is not AutoShutdown.NEVER and strategy is Strategy.DYNAMIC:
            raise BadFlags(
                f"auto_shutdown={auto_shutdown.value!r} does not go with strategy='dynamic': "
                "dynamic children cannot be significant; leave auto_shutdown out, or choose "
                "strategy='one_for_one'"
            )
        if backoff is not None and not isinstance(backoff, Backoff):
            raise BadFlags(
                f"backoff={backoff!r} is neither a Backoff nor None; "
                "write for example backoff=Backoff(initial=0.1, maximum=30.0)"
            )
        put = object.__setattr__
        put(self, "strategy", strategy)
        put(self, "max_restarts", max_restarts)
        put(self, "within", float(within))
        put(self, "auto_shutdown", auto_shutdown)
        put(self, "max_children", max_children)
        put(self, "backoff", backoff)

    def refuse_mismatch(self, child: Child) -> None:
        """Raise `BadChild` if the child cannot live under these flags. O(1)."""
        if not isinstance(child, Child):
            raise BadChild(f"{child!r} is not a child; write for example Child('db', start)")
        if child.significant and self.auto_shutdown is AutoShutdown.NEVER:
            raise BadChild(
                f"child {child.id!r} is significant, but its supervisor has auto_shutdown='never'; "
                "leave significant out, or write auto_shutdown='any_significant'"
            )


def _check_identity(
    id: object,  # noqa: A002
    start: object,
    kwargs: object,
) -> None:
    try:
        hash(id)
        findable = id == id  # noqa: PLR0124 - NaN is not: nobody would ever find that child again
    except TypeError:
        findable = False
    if not findable:
        raise BadChild(
            f"the id {id!r} of a child cannot be hashed; write for example Child('db', start)"
        ) from None
    if not callable(start):
        raise BadChild(
            f"start={start!r} of child {id!r} cannot be called; give what starts the child and "
            f"then its arguments: Child({id!r}, start, *args)"
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise BadChild(
            f"kwargs={kwargs!r} of child {id!r} is not a dict; "
            f"write for example Child({id!r}, start, kwargs={{'port': 80}})"
        )


def _one_of(
    kind: type[_Enum],
    value: object,
    name: str,
    *,
    of: str = "",
    example: str,
    error: type[BadChild | BadFlags],
) -> _Enum:
    try:
        return kind(cast("str", value))
    except ValueError:
        allowed = [member.value for member in kind]
        raise error(
            f"{name}={value!r} {of}is not one of {', '.join(map(repr, allowed))}; "
            f"write for example {example}{name}={allowed[0]!r})"
        ) from None


def _is_number(value: object) -> bool:
    # A bool is a number to Python, and NaN is one to float: neither is a time.
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value  # noqa: PLR0124


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
