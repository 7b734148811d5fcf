"""The specification of a supervisor and its children: `Child` and `Flags`.

Both are frozen and validated once, when built: a mistake shows in the line that makes it.
They are stricter than OTP's maps, where an unknown key is ignored: here it is a `TypeError`,
as for every Python function that gets a keyword it does not know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from actorflow.behaviours import arguments
from actorflow.behaviours.arguments import count, seconds
from actorflow.behaviours.errors import BadBehaviour, brief
from actorflow.runtime.errors import ActorflowError
from actorflow.runtime.restarts import Backoff, BadFlags

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = [
    "AutoShutdown",
    "BadChild",
    "Child",
    "ChildType",
    "Flags",
    "Grace",
    "RestartType",
    "Strategy",
]

Grace: TypeAlias = float | Literal["brutal_kill"]
"""How a child is stopped: the seconds it has to stop (`math.inf`: no limit), or killed at once."""


class BadChild(ActorflowError, ValueError):
    """A child specification cannot work; the message shows one that can."""


class RestartType(StrEnum):
    """When a child that has ended is restarted."""

    PERMANENT = "permanent"
    """Always, also after a clean exit."""
    TRANSIENT = "transient"
    """After a crash or a kill; after a clean exit it is kept as stopped."""
    TEMPORARY = "temporary"
    """Never; once it has ended it is forgotten, with its arguments."""


class ChildType(StrEnum):
    """The kind of a child: it decides the default of `shutdown`, and how the child is counted."""

    WORKER = "worker"
    SUPERVISOR = "supervisor"


class Strategy(StrEnum):
    """Which children are restarted when one has to be."""

    ONE_FOR_ONE = "one_for_one"
    """That child alone."""
    ONE_FOR_ALL = "one_for_all"
    """All children: they are stopped in reverse order, then started in order."""
    REST_FOR_ONE = "rest_for_one"
    """That child and those started after it, the same way."""
    DYNAMIC = "dynamic"
    """That child alone, among any number that are found by ref: OTP's simple_one_for_one."""


class AutoShutdown(StrEnum):
    """Whether the end of significant children ends their supervisor."""

    NEVER = "never"
    ANY_SIGNIFICANT = "any_significant"
    """As soon as one significant child has ended by itself and is not restarted."""
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

    `shutdown` is how many seconds the child has to stop before it is killed: by default 5.0 for
    workers and `math.inf` for supervisors. "brutal_kill" kills it without asking it to stop.

    The end of a `significant` child may end its supervisor: see `AutoShutdown`. A permanent
    child cannot be significant, because it never stays ended.

    >>> Child("db", dict, "orders.db").shutdown
    5.0
    >>> Child("tree", dict, type="supervisor").shutdown
    inf
    >>> Child("db", dict, restart="sometimes")
    Traceback (most recent call last):
    ...
    actorflow.runtime.supervision.spec.BadChild: child 'db': restart='sometimes': restart must be
    one of 'permanent', 'transient', 'temporary'
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
        of = f"child {brief(id)}: "
        example = f"Child({brief(id)}, start, restart='transient', significant=True)"
        restart = _choice(RestartType, restart, "restart", of=of, error=BadChild)
        if type is None:
            type = getattr(start, "child_type", ChildType.WORKER)  # noqa: A001 - the same
        kind = _choice(ChildType, type, "type", of=of, error=BadChild)
        if not isinstance(significant, bool):
            raise BadChild(
                f"{of}significant={brief(significant)}: significant must be True or False, "
                f"as in {example}"
            )
        if significant and restart is RestartType.PERMANENT:
            raise BadChild(
                f"{of}a permanent child cannot be significant, because it is always restarted; "
                f"write {example}, or restart='temporary'"
            )
        if shutdown is None:
            shutdown = math.inf if kind is ChildType.SUPERVISOR else 5.0
        elif not _is_grace(shutdown):
            raise BadChild(
                f"{of}shutdown={brief(shutdown)}: shutdown must be a number of seconds, zero or "
                f"more, math.inf or 'brutal_kill', as in Child({brief(id)}, start, shutdown=5.0)"
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
        """Return the same child with only these arguments for `start`. O(arguments)."""
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


@dataclass(frozen=True, slots=True, init=False)
class Flags:
    """How a supervisor treats its children.

    `strategy`: "one_for_one" (default), "one_for_all", "rest_for_one" or "dynamic".

    `max_restarts`: how many restarts are made within `within` seconds; the next one ends the
    supervisor instead. With 0 the first crash does. The default is 3 within 5 s.

    `auto_shutdown`: "never" (default), "any_significant" or "all_significant". Not "dynamic".

    `max_children`: how many children a "dynamic" supervisor may have; None: no limit.

    `backoff`: wait before each restart; None (default): restart at once, as OTP does. Then an
    attempt counts against `max_restarts` when it is made, not when the wait for it begins, so
    a wait longer than `within / max_restarts` means that the limit is never reached.

    >>> Flags(strategy="rest_for_one", max_restarts=-1)
    Traceback (most recent call last):
    ...
    actorflow.runtime.restarts.BadFlags: max_restarts=-1: max_restarts must be a whole
    number, 0 or more, as in Supervisor(children, max_restarts=3, within=5.0)
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
        strategy = _choice(Strategy, strategy, "strategy", error=BadFlags)
        auto_shutdown = _choice(AutoShutdown, auto_shutdown, "auto_shutdown", error=BadFlags)
        example = "Supervisor(children, max_restarts=3, within=5.0)"
        count(max_restarts, "max_restarts", example, least=0, error=BadFlags)
        within = seconds(within, "within", example, zero=False, error=BadFlags)
        if max_children is not None:
            example = "Supervisor(strategy='dynamic', max_children=99)"
            count(max_children, "max_children", example, least=0, error=BadFlags)
        if max_children is not None and strategy is not Strategy.DYNAMIC:
            raise BadFlags(
                f"max_children={max_children!r} needs strategy='dynamic', not {strategy.value!r}: "
                "other supervisors list their children one by one; leave max_children out"
            )
        if auto_shutdown is not AutoShutdown.NEVER and strategy is Strategy.DYNAMIC:
            raise BadFlags(
                f"auto_shutdown={auto_shutdown.value!r} cannot be combined with "
                "strategy='dynamic': dynamic children cannot be significant; leave auto_shutdown "
                "out, or choose strategy='one_for_one'"
            )
        if backoff is not None and not isinstance(backoff, Backoff):
            raise BadFlags(
                f"backoff={brief(backoff)}: backoff must be a Backoff or None, "
                "as in Supervisor(children, backoff=Backoff(initial=0.1, maximum=30.0))"
            )
        put = object.__setattr__
        put(self, "strategy", strategy)
        put(self, "max_restarts", max_restarts)
        put(self, "within", within)
        put(self, "auto_shutdown", auto_shutdown)
        put(self, "max_children", max_children)
        put(self, "backoff", backoff)

    def refuse_mismatch(self, child: Child) -> None:
        """Raise `BadChild` if a supervisor with these flags cannot have the child. O(1)."""
        if not isinstance(child, Child):
            raise BadChild(f"{brief(child)} is not a child; write for example Child('db', start)")
        if child.significant and self.auto_shutdown is AutoShutdown.NEVER:
            raise BadChild(
                f"child {brief(child.id)} is significant, but its supervisor has "
                "auto_shutdown='never'; leave significant out, or write "
                "auto_shutdown='any_significant'"
            )


def _check_identity(
    id: object,  # noqa: A002
    start: object,
    kwargs: object,
) -> None:
    try:
        hash(id)
        findable = id == id  # noqa: PLR0124 - NaN is not: no lookup would ever find that child
    except TypeError:
        findable = False
    if not findable:
        raise BadChild(
            f"the id {brief(id)} of a child cannot be hashed; write for example Child('db', start)"
        ) from None
    if not callable(start):
        raise BadChild(
            f"child {brief(id)}: start={brief(start)} cannot be called; pass what starts the child "
            f"and then its arguments, as in Child({brief(id)}, start, *args)"
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise BadChild(
            f"child {brief(id)}: kwargs={brief(kwargs)} is not a dict, "
            f"as in Child({brief(id)}, start, kwargs={{'port': 80}})"
        )


# Validation: in the words of `actorflow.behaviours.arguments`, raised as the errors of this module.


def _choice(
    kind: type[_Enum], value: object, name: str, *, of: str = "", error: type[BadChild | BadFlags]
) -> _Enum:
    try:
        return kind(arguments.choice(value, name, [member.value for member in kind]))
    except BadBehaviour as refused:
        raise error(f"{of}{refused}") from None


def _is_grace(value: object) -> bool:
    if isinstance(value, str):
        return value == "brutal_kill"
    try:
        arguments.seconds(value, "shutdown", "", infinite=True)
    except BadBehaviour:
        return False
    return True
