"""Who gets the tasks of flows: names by domain, routers, and what a tasker is called with.

The work itself is done by the engine's task layer, after the commit, outside of the run. Here is
only decided who is meant, inside the run and without effects.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.behaviours.arguments import function
from actorflow.engine.tasks.task import HELD, TaskAttempt
from actorflow.engine.tasks.tasker import function_of
from actorflow.flows.errors import FlowError, UnknownTasker
from actorflow.flows.service.payload_check import pack_payload
from actorflow.runtime.errors import BadOption, near

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actorflow.flows.execution.node import Message, Payload

__all__ = ["Directory", "FlowTask", "adapt", "adapt_cancel", "domains", "qualified"]

_MARK = "flow"  # in the body of a task: it comes from a flow
_FIELDS = ("nid", "tasker", "taskname", "attl", "attd", "tags", "payload")
_encode = msgspec.msgpack.Encoder().encode
_NOT_ROUTED = ("m", "pr", "er")
_REMEMBERED = 1_024  # names that a directory has looked up
_UNKNOWN: Any = object()


@functools.lru_cache(maxsize=1024)
def domains(domain: str) -> tuple[str, ...]:
    """Return a domain and those above it, deepest first; the last is the empty one.

    >>> domains("a.b")
    ('a.b', 'a', '')
    """
    parts = domain.split(".") if domain else []
    return tuple(".".join(parts[:size]) for size in range(len(parts), -1, -1))


def qualified(domain: str, name: str) -> str:
    """Return a name as it is written for a domain.

    >>> qualified("", "alice"), qualified("org.sales", "alice")
    ('alice', 'org.sales.alice')
    """
    return f"{domain}.{name}" if domain else name


class FlowTask(TaskAttempt, frozen=True):
    """What a tasker is called with: a task of a flow."""

    @property
    def exid(self) -> str:
        """The execution."""
        return self.execution

    @property
    def nid(self) -> str:
        """The node that waits."""
        return str(self.body["nid"])

    @property
    def name(self) -> Any:
        """The name of the task: the second word of ``task 'alice' 'stage a'``."""
        return self.body["taskname"]

    @property
    def payload(self) -> Payload:
        """The work item; a copy, which may be changed and given back."""
        return self.body["payload"]  # type: ignore[no-any-return]

    @property
    def attl(self) -> list[Any]:
        """The arguments without a key, the tasker's name included."""
        return self.body["attl"]  # type: ignore[no-any-return]

    @property
    def attd(self) -> dict[str, Any]:
        """The arguments with a key."""
        return self.body["attd"]  # type: ignore[no-any-return]

    @property
    def tags(self) -> list[str]:
        """Tags of the node and of those above it, innermost first."""
        return self.body["tags"]  # type: ignore[no-any-return]

    @property
    def vars(self) -> dict[str, Any]:
        """The variables seen from the node; only for a tasker with ``include_vars=True``."""
        return self.body.get("vars", {})  # type: ignore[no-any-return]


def task_body(message: Message, variables: dict[str, Any] | None) -> msgspec.Raw:
    """Return the body of a task as it is stored."""
    body = dict(zip(_FIELDS, map(message.get, _FIELDS), strict=True))
    if "original_tasker" in message:
        body["original_tasker"] = message["original_tasker"]
    body[_MARK] = True
    if variables is not None:
        body["vars"] = variables
    return msgspec.Raw(_encode(body))


def adapt(do: Callable[..., Any] | str, timeout: float | None = None) -> Callable[..., Any]:
    """Return a tasker for the engine that shows tasks of flows as such, and checks the answers.

    ``None`` gives the payload back, a dict replaces it, any other value becomes its ``ret``. Tasks
    that are not of a flow pass as they are.
    """
    given: Any = function_of(do, timeout)
    if not callable(given):
        return given  # type: ignore[no-any-return] # the engine refuses it, and says why
    if not inspect.iscoroutinefunction(given):
        return _Adapted(given)

    @functools.wraps(given)
    async def work(task: TaskAttempt) -> Any:
        shown = _shown(task)
        return _answer(shown, await given(shown))

    return work


def adapt_cancel(on_cancel: Callable[[Any], Any]) -> Callable[[TaskAttempt], Any]:
    """Return an `on_cancel` that is shown tasks of flows as such."""
    function(on_cancel, "on_cancel", "on_cancel=withdraw", error=BadOption)
    return lambda task: on_cancel(_shown(task))


class _Adapted:
    """A function as the engine calls it; a class, so that it can be sent to other processes."""

    __slots__ = ("_do",)

    def __init__(self, do: Callable[..., Any]) -> None:
        self._do = do

    def __call__(self, task: TaskAttempt) -> Any:
        shown = _shown(task)
        return _answer(shown, self._do(shown))


def _shown(task: TaskAttempt) -> TaskAttempt:
    body = task.body
    if type(body) is not dict or _MARK not in body:
        return task
    return FlowTask(
        task.id,
        task.execution,
        task.tasker,
        body,
        task.attempt,
        task.priority,
        task.timeout,
        task.last_progress,
        _beat=task._beat,  # noqa: SLF001 - a task shown in another way is still the same task
    )


def _answer(task: TaskAttempt, value: Any) -> Any:
    if value is HELD or not isinstance(task, FlowTask):
        return value
    if value is None:
        value = task.payload
    elif type(value) is not dict:
        value = {**task.payload, "ret": value}
    return pack_payload(value)


@dataclass(frozen=True, slots=True)
class _Entry:
    include_vars: bool
    cancellable: bool


class Directory:
    """Names of taskers, and routers. It never changes: registering makes another one."""

    __slots__ = ("_entries", "_resolved", "_routers")

    def __init__(
        self,
        entries: Mapping[str, _Entry] | None = None,
        routers: Mapping[str, Callable[[Message], Any]] | None = None,
    ) -> None:
        self._entries = dict(entries or {})
        self._routers = dict(routers or {})
        self._resolved: dict[tuple[str, str], str | None] = {}

    def __contains__(self, name: str) -> bool:
        """Return whether there is a tasker of that qualified name."""
        return name in self._entries

    def with_tasker(
        self, name: str, *, include_vars: bool = False, cancellable: bool = True
    ) -> Directory:
        """Return a directory with one more tasker, by its qualified name."""
        entry = _Entry(include_vars, cancellable)
        return Directory({**self._entries, name: entry}, self._routers)

    def without_tasker(self, name: str) -> Directory:
        """Return a directory without a tasker."""
        entries = {known: entry for known, entry in self._entries.items() if known != name}
        return Directory(entries, self._routers)

    def with_router(self, domain: str, router: Callable[[Message], Any]) -> Directory:
        """Return a directory in which `router(message)` says who gets the tasks of a domain."""
        return Directory(self._entries, {**self._routers, domain: router})

    def resolve(self, domain: str, name: Any) -> str | None:
        """Return the qualified name of the tasker that the deepest domain has."""
        if type(name) is not str:
            return None
        known: str | None = self._resolved.get((domain, name), _UNKNOWN)
        if known is _UNKNOWN:
            names = (qualified(one, name) for one in domains(domain))
            known = next((one for one in names if one in self._entries), None)
            if len(self._resolved) >= _REMEMBERED:
                self._resolved.clear()
            self._resolved[domain, name] = known
        return known

    def knows(self, domain: str, name: str) -> bool:
        """Return whether a tasker of that name is known in the domain or above it.

        Where there is a router, anybody is: the router will say who that is.
        """
        if self.resolve(domain, name) is not None:
            return True
        return bool(self._routers) and any(one in self._routers for one in domains(domain))

    def is_cancellable(self, found: str) -> bool:
        """Return whether a task of this tasker ends as soon as it is cancelled."""
        return self._entries[found].cancellable

    def wants_variables(self, found: str) -> bool:
        """Return whether this tasker asked for variables."""
        return self._entries[found].include_vars

    def offer(self, domain: str, message: Message) -> list[Message]:
        """Return what a router makes of a task, or nothing when it is to be handed out as it is.

        Raises UnknownTasker when nobody is there to take it.
        """
        if self._routers and "routed" not in message:
            for one in domains(domain):
                router = self._routers.get(one)
                if router is not None:
                    return [_routed(message, router)]
        name = message["tasker"]
        if self.resolve(domain, name) is None:
            known = sorted(self._entries)
            msg = f'tasker "{name}" not found in domain "{domain}"{near(str(name), known)}'
            raise UnknownTasker(msg)
        return []


def _routed(message: Message, router: Callable[[Message], Any]) -> Message:
    routed = {key: value for key, value in message.items() if key not in _NOT_ROUTED}
    answer = router(dict(message))
    if answer is False or answer is True or answer is None:
        routed["routed"] = answer is not False
        return routed
    if type(answer) is not str:
        msg = f"a router says the name of a tasker, True or False, not {answer!r:.100}"
        raise FlowError(msg)
    routed["routed"] = True
    if answer != message["tasker"]:
        routed.update(tasker=answer, original_tasker=message["tasker"])
    return routed
