"""The interface of a family: requests, which are plans, and questions, answered at once."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from actorflow.runtime.supervision.actions import Reply, RequestDenied, RequestDone, RequestRefusal
from actorflow.runtime.supervision.children import ChildRecord, ChildState
from actorflow.runtime.supervision.spec import Strategy

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from actorflow.runtime.supervision.actions import Action, Incarnation
    from actorflow.runtime.supervision.children import ChildCounts, ChildInfo, Phase, Plan, Request
    from actorflow.runtime.supervision.family import Family
    from actorflow.runtime.supervision.spec import Child

__all__ = ["FamilyStatistics", "Requests"]


@dataclass(frozen=True, slots=True)
class FamilyStatistics:
    """A snapshot of a family; O(1) to take."""

    phase: Phase
    children: ChildCounts
    restarts: int
    """Attempts to restart since the beginning: what counts against `max_restarts`."""
    waiting: int
    """Requests and exits that arrived during a plan and have not been handled yet."""


class Requests:
    """What users may ask of one family, as of OTP's supervisor."""

    __slots__ = ("_dynamic", "_family", "_keys")

    def __init__(self, family: Family) -> None:
        self._family = family
        self._dynamic = family.flags.strategy is Strategy.DYNAMIC
        self._keys = itertools.count(1)

    # Requests: each leads to one Reply to its caller, at once or when the plans before it are done

    def start_child(self, child: Child, *, caller: Any = None) -> list[Action]:
        """Start one more child, last in order. Answer: `Started`, `Ignored` or `RequestDenied`.

        A child that does not start is not kept. Raises `BadChild` if the flags do not allow it.
        """
        self._family.flags.refuse_mismatch(child)
        return self._request(caller, self._enter(child))

    def start_copy(
        self, *args: Any, kwargs: Mapping[str, Any] | None = None, caller: Any = None
    ) -> list[Action]:
        """Start a copy of the template, with these arguments after its own."""
        return self._request(caller, self._copy(args, kwargs or {}))

    def terminate_child(self, id: Hashable, *, caller: Any = None) -> list[Action]:  # noqa: A002
        """Stop a child, or cancel its restart. It is kept as stopped, unless temporary.

        Answer: `RequestDone`, also if it was not running; `RequestDenied`: NOT_FOUND, DYNAMIC.
        """
        return self._request(caller, self._terminate(id))

    def terminate_ref(
        self, ref: Incarnation, *, alive: bool = True, caller: Any = None
    ) -> list[Action]:
        """Stop the dynamic child with that ref, or cancel its restart.

        Answer: `RequestDone`; `RequestDenied`: NOT_DYNAMIC, or NOT_FOUND for an unknown ref.
        `alive` says whether an unknown ref is alive: if it has ended, the answer is `RequestDone`.
        """
        return self._request(caller, self._terminate_dynamic(ref, alive=alive))

    def restart_child(self, id: Hashable, *, caller: Any = None) -> list[Action]:  # noqa: A002
        """Start a stopped child. Answer: `Started`, `Ignored` or `RequestDenied`; it is kept.

        Does not count against `max_restarts`.
        """
        return self._request(caller, self._restart(id))

    def delete_child(self, id: Hashable, *, caller: Any = None) -> list[Action]:  # noqa: A002
        """Forget a stopped child. Answer: `RequestDone` or `RequestDenied`."""
        return self._request(caller, self._delete(id))

    # Questions

    def which_children(self) -> list[ChildInfo]:
        """Return all children, the newest first, as OTP does. Thread-safe. O(n)."""
        return [record.info() for record in reversed(self._family.children.snapshot())]

    def which_child(self, id: Hashable) -> ChildInfo | RequestRefusal:  # noqa: A002
        """Return one child, by its id or its ref (dynamic: by its ref). O(1)."""
        record = self._find(id)
        return RequestRefusal.NOT_FOUND if record is None else record.info()

    def get_childspec(self, id: Hashable) -> Child | RequestRefusal:  # noqa: A002
        """Return a child's specification, by its id or its ref (dynamic: by its ref). O(1).

        That of a temporary child comes without the arguments of its start, which are not kept.
        """
        record = self._find(id)
        return RequestRefusal.NOT_FOUND if record is None else record.child

    def count_children(self) -> ChildCounts:
        """Return the number of children by kind. O(1)."""
        counts = self._family.children.counts()
        return counts if self._family.template is None else replace(counts, specs=1)

    def statistics(self) -> FamilyStatistics:
        """Return a snapshot of the family. O(1)."""
        return FamilyStatistics(
            phase=self._family.planner.phase,
            children=self.count_children(),
            restarts=self._family.restarts.count,
            waiting=len(self._family.planner),
        )

    # The plans of requests

    def _request(self, caller: Any, request: Request) -> list[Action]:
        if self._family.planner.leaving is not None:
            return [Reply(caller, RequestDenied(RequestRefusal.STOPPING))]
        return self._family.planner.submit(self._answer(caller, request))

    def _answer(self, caller: Any, request: Request) -> Plan:
        leaving = self._family.planner.leaving is not None
        answer = RequestDenied(RequestRefusal.STOPPING) if leaving else (yield from request)
        self._family.planner.say(Reply(caller, answer))

    def _enter(self, child: Child) -> Request:
        if self._dynamic:
            if self._family.template is not None:
                return RequestDenied(RequestRefusal.TEMPLATE)
            return (yield from self._add(next(self._keys), child))
        known = self._family.children.find(child.id)
        if known is None:
            return (yield from self._add(child.id, child))
        if known.state in {ChildState.RUNNING, ChildState.EXITED}:
            return RequestDenied(RequestRefusal.ALREADY_STARTED, ref=known.ref)
        return RequestDenied(RequestRefusal.ALREADY_PRESENT)

    def _copy(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Request:
        child = self._family.template
        if child is None:
            return RequestDenied(RequestRefusal.NO_TEMPLATE)
        if args or kwargs:
            child = child.with_arguments((*child.args, *args), {**child.kwargs, **kwargs})
        return (yield from self._add(next(self._keys), child))

    def _add(self, key: Hashable, child: Child) -> Request:
        limit = self._family.flags.max_children
        if limit is not None and len(self._family.children) >= limit:
            return RequestDenied(RequestRefusal.MAX_CHILDREN)
        record = ChildRecord(key, child)
        self._family.children.add(record)
        answer = yield from self._family.restarts.start(record, requested=True)
        if isinstance(answer, RequestDenied):
            self._family.children.remove(record)
        return answer

    def _terminate(self, id: Hashable) -> Request:  # noqa: A002
        record = self._named(id)
        if isinstance(record, RequestDenied):
            return record
        record.failures = 0
        yield from self._family.stops.stop(record)
        return RequestDone()

    def _terminate_dynamic(self, ref: Incarnation, *, alive: bool) -> Request:
        if not self._dynamic:
            return RequestDenied(RequestRefusal.NOT_DYNAMIC)
        record = self._family.children.find_ref(ref)
        if record is not None:
            yield from self._family.stops.stop(record)
        elif alive:
            return RequestDenied(RequestRefusal.NOT_FOUND)
        return RequestDone()

    def _restart(self, id: Hashable) -> Request:  # noqa: A002
        record = self._stopped(id)
        if isinstance(record, RequestDenied):
            return record
        record.failures = 0
        answer = yield from self._family.restarts.start(record, requested=True)
        if isinstance(answer, RequestDenied):
            self._family.children.move(record, ChildState.STOPPED)
        return answer

    def _delete(self, id: Hashable) -> Request:  # noqa: A002
        yield from ()  # a generator like the others, though it has no step to wait for
        record = self._stopped(id)
        if isinstance(record, RequestDenied):
            return record
        self._family.children.remove(record)
        return RequestDone()

    def _named(self, id: Hashable) -> ChildRecord | RequestDenied:  # noqa: A002
        if self._dynamic:
            return RequestDenied(RequestRefusal.DYNAMIC)
        return self._family.children.find(id) or RequestDenied(RequestRefusal.NOT_FOUND)

    def _stopped(self, id: Hashable) -> ChildRecord | RequestDenied:  # noqa: A002
        record = self._named(id)
        if isinstance(record, RequestDenied) or record.state is ChildState.STOPPED:
            return record
        restarting = record.state is ChildState.RESTARTING
        return RequestDenied(RequestRefusal.RESTARTING if restarting else RequestRefusal.RUNNING)

    def _find(self, id: Hashable) -> ChildRecord | None:  # noqa: A002
        record = None if self._dynamic else self._family.children.find(id)
        return record or self._family.children.find_ref(id)
