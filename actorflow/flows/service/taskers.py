"""Who is given the tasks of flows: names by domain, routers, and what a tasker is called with.

The work itself is done by the engine's task layer, after the commit, outside of the run. Here is
only decided who is meant, inside the run and without effects.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actorflow.engine.tasks.tasker import HOLD, Task
from actorflow.flows.errors import FlowError, UnknownTasker, check_payload
from actorflow.runtime.errors import near

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.flows.execution.node import Message, Payload

__all__ = ["Directory", "FlowTask", "adapt", "domains", "qualified"]

_MARK = "flow"  # in the body of a task: it comes from a flow
_NOT_ROUTED = ("m", "pr", "er")


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


class FlowTask(Task):
    """What a tasker is called with: a task of a flow."""

    __slots__ = ()

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
        """What is to be done: the second word of ``task 'alice' 'stage a'``."""
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


def task_body(message: Message, variables: dict[str, Any] | None) -> dict[str, Any]:
    """Return the body of a task as it is stored."""
    keys = ("nid", "tasker", "original_tasker", "taskname", "attl", "attd", "tags", "payload")
    body: dict[str, Any] = {key: message[key] for key in keys if key in message}
    body[_MARK] = True
    if variables is not None:
        body["vars"] = variables
    return body


def adapt(do: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tasker for the engine that shows tasks of flows as such, and checks the answers.

    ``None`` gives the payload back, a dict replaces it, any other value becomes its ``ret``. Tasks
    that are not of a flow pass as they are.
    """
    given: Any = do
    if not callable(given):
        return do  # the engine refuses it, and says why
    if not inspect.iscoroutinefunction(do):
        return _Adapted(do)

    @functools.wraps(do)
    async def work(task: Task) -> Any:
        shown = _shown(task)
        return _answer(shown, await do(shown))

    return work


class _Adapted:
    """A function as the engine calls it; a class, so that it can be sent to other processes."""

    __slots__ = ("_do",)

    def __init__(self, do: Callable[..., Any]) -> None:
        self._do = do

    def __call__(self, task: Task) -> Any:
        shown = _shown(task)
        return _answer(shown, self._do(shown))


def _shown(task: Task) -> Task:
    body = task.body
    if type(body) is not dict or _MARK not in body:
        return task
    beat = task._beat  # noqa: SLF001 - a task shown in another way is still the same task
    return FlowTask(task.id, task.execution, task.tasker, body, task.attempt, beat)


def _answer(task: Task, value: Any) -> Any:
    if value is HOLD or not isinstance(task, FlowTask):
        return value
    if value is None:
        return check_payload(task.payload)
    if type(value) is dict:
        return check_payload(value)
    return check_payload({**task.payload, "ret": value})


@dataclass(frozen=True, slots=True)
class _Entry:
    include_vars: bool
    cancellable: bool


class Directory:
    """Names of taskers and routers. Read inside runs, in any thread; written when registering."""

    def __init__(self) -> None:
        """Know nobody."""
        self._entries: dict[str, _Entry] = {}
        self._routers: dict[str, Callable[[Message], Any]] = {}

    def add(self, name: str, *, include_vars: bool = False, cancellable: bool = True) -> None:
        """Make a tasker known by its qualified name."""
        self._entries[name] = _Entry(include_vars, cancellable)

    def route(self, domain: str, router: Callable[[Message], Any]) -> None:
        """Have ``router(message)`` say who gets the tasks of a domain and those below it."""
        self._routers[domain] = router

    def resolve(self, domain: str, name: str) -> str | None:
        """Return the qualified name of the tasker that the deepest domain has."""
        entries = self._entries
        for one in domains(domain):
            found = qualified(one, name)
            if found in entries:
                return found
        return None

    def knows(self, domain: str, name: str) -> bool:
        """Tell whether somebody of that name is known in the domain or above it.

        Where there is a router, anybody is: the router will say who that is.
        """
        if self.resolve(domain, name) is not None:
            return True
        return bool(self._routers) and any(one in self._routers for one in domains(domain))

    def is_cancellable(self, found: str) -> bool:
        """Tell whether a task of this tasker ends as soon as it is cancelled."""
        return self._entries[found].cancellable

    def wants_variables(self, found: str) -> bool:
        """Tell whether this tasker asked for variables."""
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
