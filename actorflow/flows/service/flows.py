"""What users call: launch, signal, re-apply, and the other verbs of flows, on an engine."""

from __future__ import annotations

import asyncio
import functools
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.engine import bodies
from actorflow.engine.errors import ExecutionEnded, UnknownExecution, WaitTimeout
from actorflow.engine.ids import check_id, read
from actorflow.engine.kind import ENDED
from actorflow.flows.errors import FlowError, FlowMessageRefused
from actorflow.flows.execution.codec import decode, tree_bytes
from actorflow.flows.execution.loop import MAX_MESSAGES
from actorflow.flows.execution.node import ROOT, child_id
from actorflow.flows.execution.requests import (
    add_branches_message,
    add_elements_message,
    cancel_message,
    launch_message,
    re_apply_message,
    signal_message,
)
from actorflow.flows.language.checks import check_text, check_tree
from actorflow.flows.service.awaited_points import Search, missed, steps_of
from actorflow.flows.service.exids import ExidMaker, check_domain
from actorflow.flows.service.kind import KIND, FlowKind
from actorflow.flows.service.library import Library
from actorflow.flows.service.payload_check import check_payload, pack_payload
from actorflow.flows.service.received_messages import launch_body, task_id
from actorflow.flows.service.taskers import Directory, adapt, adapt_cancel, qualified
from actorflow.runtime.errors import BadOption
from actorflow.runtime.tickets import AsyncTicket, ThreadTicket, check_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actorflow.engine.engine import BareEngine
    from actorflow.flows.execution.node import Message, Node, Payload
    from actorflow.flows.language.tree import Tree

__all__ = ["DOMAIN", "UNIT", "Flows"]

DOMAIN, UNIT = "main", "u0"
_TOGETHER = 200  # executions that are launched at once


class Flows:
    """The flows of an engine. Thread-safe.

    Register taskers, subflows and variables before the first launch, or `engine.resume()`: from
    then on the executions that are stored go on.
    """

    def __init__(
        self, engine: BareEngine, *, max_messages: int = MAX_MESSAGES, history: bool = True
    ) -> None:
        self._engine = engine
        self._parts = engine.parts
        self._exids = ExidMaker()
        self._registering = threading.Lock()
        self._directory = Directory()
        self._library = Library()
        self.kind = FlowKind(
            directory=lambda: self._directory,
            library=lambda: self._library,
            max_messages=max_messages,
            history=history,
        )
        self._parts.register(self.kind)

    # Beginning.

    def launch(
        self,
        flow: str | Tree,
        *,
        payload: Payload | None = None,
        vars: dict[str, Any] | None = None,  # noqa: A002 - the word of the language
        domain: str = DOMAIN,
        unit: str = UNIT,
        id: str | None = None,  # noqa: A002 - as for the other kinds
        connection: Any = None,
    ) -> str:
        """Start an execution; return its id once it is stored.

        Args:
            flow: its text, or its tree.
            payload: what it works on: a JSON object.
            vars: the variables of its root.
            domain: where it belongs: which taskers, subflows and variables it sees.
            unit: who runs it; a part of the id.
            id: only the first call with the same id starts an execution; another one changes
                nothing, as long as that execution is kept. Made if not given.
            connection: a `psycopg.Connection` whose open transaction this joins: it happens when
                that commits, and never if it is rolled back. For engines on Postgres.

        Raises:
            FlowSyntaxError: the text is not a flow; `EmptyFlow`, if there is nothing in it.
            LimitExceeded: the flow is too long, or nests too deep.
            FlowError: it is neither text nor a tree.
            BadPayload: the payload or the variables are not JSON objects.
            KindMismatch: the id is that of an execution of another kind.

        """
        body = _launch_body(flow, vars, domain, unit)
        message = _packed(body, pack_payload({} if payload is None else payload))
        while True:
            exid, done = self._exid(domain, unit, id), ThreadTicket()
            if connection is not None:
                created = self._parts.transactions.create(connection, exid, KIND, message)
                if created or id is not None:
                    return exid
                continue
            self._parts.sender.create(exid, KIND, message, done)
            if self._parts.sender.wait_created(done) or id is not None:
                return exid

    async def alaunch(
        self,
        flow: str | Tree,
        *,
        payload: Payload | None = None,
        vars: dict[str, Any] | None = None,  # noqa: A002 - the word of the language
        domain: str = DOMAIN,
        unit: str = UNIT,
        id: str | None = None,  # noqa: A002 - as for the other kinds
        connection: Any = None,
    ) -> str:
        """Like `launch`, from a task of any event loop."""
        if connection is not None:
            return await asyncio.to_thread(
                self.launch, flow, payload=payload, vars=vars, domain=domain, unit=unit, id=id,
                connection=connection,
            )  # fmt: skip
        body = _launch_body(flow, vars, domain, unit)
        message = _packed(body, pack_payload({} if payload is None else payload))
        while True:
            exid, done = self._exid(domain, unit, id), AsyncTicket()
            self._parts.sender.create(exid, KIND, message, done)
            if await self._parts.writer.await_for(done, None, flow) or id is not None:
                return exid

    def _exid(self, domain: str, unit: str, given: str | None) -> str:
        if given is not None:
            return check_id(given, "an execution")
        return self._exids.make(domain, unit, self._parts.clock.now())

    def launch_many(
        self,
        flow: str | Tree,
        payloads: Iterable[Payload],
        *,
        vars: dict[str, Any] | None = None,  # noqa: A002 - the word of the language
        domain: str = DOMAIN,
        unit: str = UNIT,
    ) -> list[str]:
        """Start an execution for each payload; return their ids once all are stored.

        They share their commits, so this is much faster than as many calls of `launch`. Payloads
        are all checked before the first one is started. Some are stored before others are sent,
        because messages on their way take memory.
        """
        body = _launch_body(flow, vars, domain, unit)
        packed = [pack_payload(payload) for payload in payloads]  # all of them, or none
        exids: list[str] = []
        for begin in range(0, len(packed), _TOGETHER):
            exids += self._launch_together(body, packed[begin : begin + _TOGETHER])
        return exids

    async def alaunch_many(
        self,
        flow: str | Tree,
        payloads: Iterable[Payload],
        *,
        vars: dict[str, Any] | None = None,  # noqa: A002 - the word of the language
        domain: str = DOMAIN,
        unit: str = UNIT,
    ) -> list[str]:
        """Like `launch_many`, from a task of any event loop."""
        return await asyncio.to_thread(
            self.launch_many, flow, payloads, vars=vars, domain=domain, unit=unit
        )

    def _launch_together(self, body: Message, payloads: list[msgspec.Raw]) -> list[str]:
        parts = self._parts
        made: list[tuple[str, ThreadTicket]] = []
        for payload in payloads:
            exid, done = self._exid(body["domain"], body["unit"], None), ThreadTicket()
            parts.sender.create(exid, KIND, _packed(body, payload), done)
            made.append((exid, done))
        exids = []
        for (exid, done), payload in zip(made, payloads, strict=True):
            if parts.sender.wait_created(done):
                exids.append(exid)
            else:  # there is one of that id: try others
                exids += self._launch_together(body, [payload])
        return exids

    # Waiting for something inside.

    def wait_for(
        self, exid: str, points: str, timeout: float | None = None, *, after: int = 0
    ) -> Message:
        """Wait until messages were processed and their effects sent out; return the last message.

        Args:
            exid: the execution.
            points: of messages, with the node where that matters, one after the other:
                `"0_1 task; terminated"`. `failed|terminated` is the first of these to come,
                `task:alice` one for that tasker, `entered:x` and `left:x` are for a tag,
                `signal:x` for a name; `end` is the end of a run.
            timeout: seconds.
            after: only messages of a greater number (`message["m"]`) count. Messages before
                the call count as well, as far back as the history is kept.

        Raises:
            UnknownExecution: no execution has that id.
            PointMissed: it has ended, and that has not happened.
            WaitTimeout: not in time. It goes on.
            BadOption: the points cannot be read, or no history is kept.

        """
        search = self._search(exid, points, after)
        if timeout is not None:
            check_timeout(timeout)
        end = None if timeout is None else monotonic() + timeout
        while True:
            ticket = ThreadTicket()
            try:
                found = self._look(exid, search, ticket)
                if found is not None:
                    sent_out = ThreadTicket()
                    if self._parts.writer.call(sent_out.resolve):
                        sent_out.wait(None)
                    return found
                left = None if end is None else max(end - monotonic(), 0.0)
                if not ticket.wait(left):
                    raise _late(search, timeout)
                if ticket.error is not None:
                    raise ticket.error
            finally:
                self._forget(exid, ticket)

    async def await_for(
        self, exid: str, points: str, timeout: float | None = None, *, after: int = 0
    ) -> Message:
        """Like `wait_for`, from a task of any event loop."""
        search = self._search(exid, points, after)
        if timeout is not None:
            check_timeout(timeout)
        end = None if timeout is None else monotonic() + timeout
        while True:
            ticket = AsyncTicket()
            try:
                found = self._look(exid, search, ticket)
                if found is not None:
                    sent_out = AsyncTicket()
                    if self._parts.writer.call(sent_out.resolve):
                        await sent_out.wait(None)
                    return found
                left = None if end is None else max(end - monotonic(), 0.0)
                if not await ticket.wait(left):
                    raise _late(search, timeout)
            finally:
                self._forget(exid, ticket)

    def _search(self, exid: str, points: str, after: int) -> Search:
        steps = steps_of(points)
        if not self.kind.keeps_history:
            msg = "waiting for a point looks at the history: use Engine(history=True)"
            raise BadOption(msg)
        return Search(self._parts.store, exid, steps, after)

    def _look(self, exid: str, search: Search, ticket: Any) -> Message | None:
        """Search the history; if nothing matches, `ticket` is resolved when to look again."""
        parts = self._parts
        parts.state.require_open()
        parts.resume()
        self.kind.waiters.add(exid, ticket)
        parts.waiters.add(exid, ticket)  # it hears of the end, and of the engine's
        parts.ownership.follow(exid)
        row = self._row(exid)
        found: dict[str, Any] | None = read(parts.state, search.look)
        if found is None and row.status in ENDED:
            raise missed(exid)
        return found

    def _forget(self, exid: str, ticket: Any) -> None:
        self.kind.waiters.remove(exid, ticket)
        self._parts.waiters.remove(exid, ticket)

    # Steering.

    def kill(self, exid: str, nid: str = ROOT) -> bool:
        """End a node at once; no handler is asked. Return whether it was there.

        `engine.cancel(exid, nid)` asks its handlers.
        """
        message = self._kill(exid, nid)
        if message is None:
            return False
        try:
            return self._put(exid, message)
        except ExecutionEnded:
            return False

    async def akill(self, exid: str, nid: str = ROOT) -> bool:
        """Like `kill`, from a task of any event loop."""
        message = self._kill(exid, nid)
        if message is None:
            return False
        try:
            return await self._aput(exid, message)
        except ExecutionEnded:
            return False

    def _kill(self, exid: str, nid: str) -> Message | None:
        nodes = self._nodes(exid)
        meant = nodes.values() if nid == ROOT else [nodes[nid]] if nid in nodes else []
        if all(node.state == "ended" for node in meant):
            return None
        return cancel_message(exid, nid, kill=True)

    def signal(self, exid: str, name: str, payload: Payload | None = None) -> None:
        """Send a signal; it is not kept, so without a trap it has no effect."""
        self._put(exid, self._signal(exid, name, payload))

    async def asignal(self, exid: str, name: str, payload: Payload | None = None) -> None:
        """Like `signal`, from a task of any event loop."""
        await self._aput(exid, self._signal(exid, name, payload))

    def _signal(self, exid: str, name: str, payload: Payload | None) -> Message:
        self._row(exid)
        check_id(name, "a signal")
        return signal_message(exid, name, check_payload({} if payload is None else payload))

    def re_apply(
        self, exid: str, nid: str, flow: str | Tree, payload: Payload | None = None
    ) -> None:
        """Cancel a node and execute another flow in its place."""
        self._put(exid, self._re_apply(exid, nid, flow, payload))

    async def are_apply(
        self, exid: str, nid: str, flow: str | Tree, payload: Payload | None = None
    ) -> None:
        """Like `re_apply`, from a task of any event loop."""
        await self._aput(exid, self._re_apply(exid, nid, flow, payload))

    def _re_apply(self, exid: str, nid: str, flow: str | Tree, payload: Payload | None) -> Message:
        self._row(exid)
        tree = _tree(flow)
        _check_storable(tree)
        checked = None if payload is None else check_payload(payload)
        return re_apply_message(exid, nid, tree, checked)

    def add_branches(self, exid: str, nid: str, flows: Sequence[str | Tree]) -> None:
        """Add branches to a concurrence, after the existing ones.

        `nid` is that of the concurrence.
        """
        self._put(exid, self._add_branches(exid, nid, flows))

    async def aadd_branches(self, exid: str, nid: str, flows: Sequence[str | Tree]) -> None:
        """Like `add_branches`, from a task of any event loop."""
        await self._aput(exid, self._add_branches(exid, nid, flows))

    def _add_branches(self, exid: str, nid: str, flows: Sequence[str | Tree]) -> Message:
        nodes = self._nodes(exid)
        if nid not in nodes:
            msg = f"there is no node {nid} in {exid} to add branches to"
            raise FlowMessageRefused(msg)
        trees = [_tree(flow) for flow in flows]
        return add_branches_message(exid, nid, _count_branches(nodes, nid), trees)

    def add_iterations(self, exid: str, nid: str, elements: Sequence[Any]) -> None:
        """Add elements to an iterator (map, for-each, ...)."""
        self._row(exid)
        self._put(exid, add_elements_message(exid, nid, elements))

    async def aadd_iterations(self, exid: str, nid: str, elements: Sequence[Any]) -> None:
        """Like `add_iterations`, from a task of any event loop."""
        self._row(exid)
        await self._aput(exid, add_elements_message(exid, nid, elements))

    def return_task(self, exid: str, nid: str, payload: Payload | None = None) -> None:
        """Return the task that a node waits for; without a payload, as it was handed out.

        Like `engine.return_task`, it returns when the result is stored.

        Raises:
            MessageRefused: it was returned already, or cancelled.
            BadPayload: the payload is not a JSON object.
            StoreFull: there is no room now; it is stored once there is, if the engine runs then.

        """
        task, answer = self._answer(exid, nid, payload)
        if not self._engine.return_task(task, answer):
            raise _refused(exid, nid, "was returned already, or cancelled")

    async def areturn_task(self, exid: str, nid: str, payload: Payload | None = None) -> None:
        """Like `return_task`, from a task of any event loop."""
        task, answer = self._answer(exid, nid, payload)
        if not await self._engine.areturn_task(task, answer):
            raise _refused(exid, nid, "was returned already, or cancelled")

    def _answer(self, exid: str, nid: str, payload: Payload | None) -> tuple[str, Payload]:
        """Return the id of the task that a node waits for, and the payload to answer it with."""
        parts = self._parts
        parts.state.require_open()
        parts.resume()
        node = self._nodes(exid).get(nid)
        handed = None if node is None else node.own.get("handed")
        if handed is None:
            why = "there is no such task" if node is not None else "its node is gone"
            raise _refused(exid, nid, f"cannot be returned: {why}")
        task = task_id(exid, nid, handed[0])
        if payload is None:
            row = parts.store.task(task)
            payload = {} if row is None else bodies.decode(row.body)["payload"]
        return task, check_payload(payload)

    def _row(self, exid: str) -> Any:
        row = self._parts.row(exid)
        if row.kind != KIND:
            msg = f"execution {exid!r} is not a flow but of kind {row.kind!r}"
            raise UnknownExecution(msg)
        return row

    def _nodes(self, exid: str) -> dict[str, Node]:
        state = self._row(exid).state
        return {} if state is None else decode(state).nodes

    def _put(self, exid: str, message: Message) -> bool:
        """Send a message; return when what it led to is committed."""
        processed = ThreadTicket()
        self._parts.sender.append(exid, None, (message,), processed=processed)
        self._parts.writer.wait_for(processed, None, message)
        return True

    async def _aput(self, exid: str, message: Message) -> bool:
        """Like `_put`, from a task of any event loop."""
        processed = AsyncTicket()
        self._parts.sender.append(exid, None, (message,), processed=processed)
        await self._parts.writer.await_for(processed, None, message)
        return True

    # Registering.

    def tasker(
        self,
        /,
        name: str,
        do: Callable[..., Any] | str,
        *,
        domain: str = "",
        include_vars: bool = False,
        cancellable: bool = True,
        **options: Any,
    ) -> None:
        """Register a tasker: `do(task)` is called for each task, sync or async; or a URL.

        For a task of a flow, `None` gives its payload back, a dict replaces the payload, any other
        value becomes its `ret`, and `HOLD` says that the answer comes later. Tasks of other kinds
        of execution are passed on as they are.

        Args:
            name: as flows and workflows write it.
            do: the function; what it raises fails the task, after `retries`.
            domain: seen in this domain and below; the deepest of a name wins.
            include_vars: whether `task.vars` holds the variables seen from the node.
            cancellable: whether a cancelled task ends at once; else it ends when the tasker
                answers.
            options: those of `engine.tasker`: `concurrency`, `retries`, `backoff`, `timeout`,
                `behaviour`, `throttle`, `executor`, `on_cancel`.

        Raises:
            BadOption: there is a tasker of that name already, or an option is not valid.

        """
        parts = self._parts
        parts.state.require_open()
        known = check_id(qualified(domain, name), "a tasker")
        work = adapt(do, options.get("timeout"))
        if options.get("on_cancel") is not None:
            options["on_cancel"] = adapt_cancel(options["on_cancel"])
        # Waiting tasks are handed out at once, so runs must know the tasker by then.
        with self._registering:
            if known in self._directory or known in parts.tasks.names():
                msg = f"there is a tasker {known!r} already; give this one another name"
                raise BadOption(msg)
            self._directory = self._directory.with_tasker(
                known, include_vars=include_vars, cancellable=cancellable
            )
        try:
            parts.tasks.register(known, work, options)
        except BaseException:
            with self._registering:
                self._directory = self._directory.without_tasker(known)
            raise

    def router(self, route: Callable[[Message], Any], *, domain: str = "") -> None:
        """Register a function that chooses the tasker for each task of a domain and those below.

        It gets the task message and returns the name of a tasker, `True` for the one that was
        asked for, or `False` for nobody. It runs inside the run: no effects, no waiting.
        """
        with self._registering:
            self._directory = self._directory.with_router(domain, route)

    def subflow(self, name: str, flow: str | Tree, *, domain: str = "") -> None:
        """Make a flow known, for `graft` and `import`."""
        tree = _tree(flow)
        with self._registering:
            self._library = self._library.with_subflow(domain, name, tree)

    def define(self, name: str, value: Any, *, domain: str = "") -> None:
        """Make a variable known to all executions of a domain and below; flows only read it."""
        checked = check_payload({"value": value})["value"]
        with self._registering:
            self._library = self._library.with_variable(domain, name, checked)


def _refused(exid: str, nid: str, why: str) -> FlowMessageRefused:
    return FlowMessageRefused(f"the task at node {nid} of {exid} {why}")


def _late(search: Search, timeout: float | None) -> WaitTimeout:
    return WaitTimeout(f"{search.wanted!r} did not happen within {timeout} s")


def _launch_body(
    flow: str | Tree, variables: dict[str, Any] | None, domain: str, unit: str
) -> Message:
    """Return the body of the message that launches a flow, without its payload."""
    tree = _tree(flow)
    _check_storable(tree)
    check_domain(domain, unit)
    checked = {} if variables is None else check_payload(variables)
    return launch_body(launch_message("", tree, variables=checked), domain, unit)


def _packed(body: Message, payload: msgspec.Raw) -> msgspec.Raw:
    """Return the message that launches a flow, as it is stored."""
    return msgspec.Raw(_encode({**body, "payload": payload}))


_encode = msgspec.msgpack.Encoder().encode
_parsed = functools.lru_cache(maxsize=256)(check_text)


def _tree(flow: str | Tree) -> Tree:
    """Return the tree of a text, or a tree as it is; trees are never changed."""
    return _parsed(flow) if isinstance(flow, str) else check_tree(flow)


def _check_storable(tree: Tree) -> None:
    """Raise FlowError when something in a tree cannot be stored."""
    try:
        tree_bytes(tree)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        msg = f"the flow cannot be stored: {error}"
        raise FlowError(msg) from None


def _count_branches(nodes: dict[str, Node], nid: str) -> int:
    """Return how many children a node has in its tree."""
    node = nodes[nid]
    path: list[int] = []
    while node.tree is None:
        path.append(child_id(node.nid))
        node = nodes[node.parent or ROOT]
    tree = node.tree
    for position in reversed(path):
        tree = tree[1][position]
    return len(tree[1])
