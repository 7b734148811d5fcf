"""What users call: launch, wait, cancel, and the other verbs of flows, on an engine."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies
from actorflow.engine.engine import Engine as BareEngine
from actorflow.engine.errors import EngineClosed, StoreRefused, UnknownExecution
from actorflow.engine.kind import Status
from actorflow.flows.errors import FlowError, MessageRefused, check_payload
from actorflow.flows.execution.codec import tree_bytes
from actorflow.flows.execution.loop import MAX_MESSAGES
from actorflow.flows.execution.node import ROOT, child_id
from actorflow.flows.execution.requests import launch_message
from actorflow.flows.language.parser import parse
from actorflow.flows.language.tree import strays
from actorflow.flows.service.exids import ExidMaker
from actorflow.flows.service.kind import KIND, FlowKind, task_id
from actorflow.flows.service.library import Library
from actorflow.flows.service.taskers import Directory, adapt, qualified
from actorflow.flows.service.view import FlowExecution
from actorflow.flows.service.waiting import Waiter, Waiters, missed, steps_of
from actorflow.runtime.errors import BadOption
from actorflow.runtime.worker.tickets import ThreadTicket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actorflow.engine.stores.protocol import Change, ExecutionRow
    from actorflow.flows.execution.node import Message, Payload
    from actorflow.flows.language.tree import Tree

__all__ = ["DOMAIN", "UNIT", "Flows"]

DOMAIN, UNIT = "main", "u0"
_TOGETHER = 200  # executions that are launched at once


class Flows:
    """The flows of an engine. Safe in any thread.

    Executions that are in the store go on at the first call of a verb, or of `resume`: register
    taskers, subflows and variables before.
    """

    def __init__(
        self, engine: BareEngine, *, max_messages: int = MAX_MESSAGES, history: bool = True
    ) -> None:
        self._engine = engine
        self._exids = ExidMaker()
        self.directory = Directory()
        self.library = Library()
        self.kind = FlowKind(
            now=engine.clock.now,
            directory=self.directory,
            loader=self.library,
            exists=lambda exid: engine.store.execution(exid) is not None,
            max_messages=max_messages,
            history=history,
        )
        self._resumed = False
        self.waiters = Waiters()

    def resume(self) -> None:
        """Let the executions of the store go on. Later calls do nothing."""
        if not self._resumed:
            self._resumed = True
            self.kind.find_wide_traps(self._engine.store)
            self._engine.register(self.kind)

    # -- beginning ----------------------------------------------------------------------------

    def launch(
        self,
        flow: str | Tree,
        *,
        payload: Payload | None = None,
        vars: dict[str, Any] | None = None,  # noqa: A002 - the word of the language
        domain: str = DOMAIN,
        unit: str = UNIT,
    ) -> str:
        """Start an execution; return its id once it is stored.

        Raises:
            FlowSyntaxError: the text is not a flow.
            BadPayload: the payload or the variables are not JSON objects.

        """
        return self.launch_many(
            flow, [{} if payload is None else payload], vars=vars, domain=domain, unit=unit
        )[0]

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
        are all checked before the first one is started. Some are stored before others are sent:
        what is on its way takes memory.
        """
        self.resume()
        tree = _tree(flow)
        variables = {} if vars is None else check_payload(vars)
        launch = launch_message("", tree, variables=variables)
        launch["tree"] = _storable(tree)
        checked = [check_payload(payload) for payload in payloads]  # all of them, or none
        exids = []
        for begin in range(0, len(checked), _TOGETHER):
            tickets = []
            for payload in checked[begin : begin + _TOGETHER]:
                exid = self._exids.make(domain, unit, self._engine.clock.now())
                stored = ThreadTicket()
                message = {**launch, "exid": exid, "payload": payload}
                self._engine.append(exid, KIND, (message,), stored=stored)
                tickets.append(stored)
                exids.append(exid)
            for ticket in tickets:
                self._engine.await_ticket(ticket, None, flow)
        return exids

    # -- looking ------------------------------------------------------------------------------

    def execution(self, exid: str) -> FlowExecution:
        """Give an execution as it is stored.

        Raises:
            UnknownExecution: there is none of that id, or it is not a flow.

        """
        return FlowExecution(self._row(exid), self._engine.store)

    def _row(self, exid: str) -> ExecutionRow:
        self.resume()
        row = self._engine.row(exid)
        if row.kind != KIND:
            msg = f"execution {exid!r} is not a flow but a {row.kind!r}"
            raise UnknownExecution(msg)
        return row

    def wait(self, exid: str, timeout: float | None = None) -> FlowExecution:
        """Wait until an execution is done, failed or cancelled; give it as it is then.

        Raises:
            UnknownExecution: there is none of that id.
            WaitTimeout: not in time. It goes on.

        """
        return self.wait_for_end(self._row(exid), timeout)

    def wait_for_end(self, row: ExecutionRow, timeout: float | None = None) -> FlowExecution:
        """Do as `wait`, for an execution that was just fetched."""
        self.resume()
        if row.status == Status.ACTIVE:
            row = BareEngine.wait(self._engine, row.id, timeout)
        return FlowExecution(row, self._engine.store)

    def wait_for(
        self, exid: str, points: str, timeout: float | None = None, *, after: int = 0
    ) -> Message:
        """Wait until messages were processed and what they led to was sent out; give the last.

        Args:
            exid: the execution.
            points: of messages, with the node where that matters, one after the other:
                `"0_1 task; terminated"`. `failed|terminated` is the first of these to come,
                `task:alice` one for that tasker, `entered:x` and `left:x` are for a tag,
                `signal:x` for a name; `end` is the end of a run.
            timeout: seconds.
            after: only messages of a greater number (`message["m"]`) count. What happened before
                the call does, too, as far back as the history is kept.

        Raises:
            UnknownExecution: there is none of that id.
            PointMissed: it has ended, and that has not happened.
            WaitTimeout: not in time. It goes on.
            BadOption: the points cannot be read, or no history is kept.

        """
        waiter = Waiter(steps_of(points), after)
        if not self.kind.keeps_history:
            msg = "waiting for a point looks at the history: use Engine(history=True)"
            raise BadOption(msg)
        self.waiters.add(exid, waiter)
        try:
            found = self._look_back(exid, waiter)
            return waiter.wait(timeout) if found is None else found
        except StoreRefused:
            if self._engine.closed:
                raise _closed() from None
            raise
        finally:
            self.waiters.remove(exid, waiter)

    def _look_back(self, exid: str, waiter: Waiter) -> Message | None:
        """Look through the history; raise if there is nothing more to come."""
        if self._engine.closed:
            raise _closed()
        row = self._row(exid)  # before the history: if it has ended, that is complete
        for record in self._engine.store.rows("history", exid):
            found = waiter.look(record.body)
            if found is not None:
                self._engine.writer.call(lambda: waiter.add(None))
                waiter.wait_for_mark()  # what was committed is sent out by then: tasks, say
                return found
        if row.status in {Status.DONE, Status.CANCELLED}:
            raise missed(exid)
        return None

    def committed(self, change: Change) -> None:
        """Hear of a commit: tell those who wait for something in it. In the writer's thread."""
        if self.waiters and change.history:
            self.waiters.tell(change)

    def close(self) -> None:
        """Tell those who wait that the engine has been closed."""
        self.waiters.close(_closed())

    # -- steering -----------------------------------------------------------------------------

    def cancel(self, exid: str, nid: str = ROOT) -> bool:
        """Cancel a node, the root unless told otherwise; its handlers and taskers are told.

        Tells whether it was there. Returns once that is committed; handlers may go on.
        """
        if not self._is_there(exid, nid):
            return False
        self._put(exid, "cancel", nid=nid)
        return True

    def _is_there(self, exid: str, nid: str) -> bool:
        node = self.execution(exid).state.nodes.get(nid)
        return node is not None and node.state != "ended"

    def kill(self, exid: str, nid: str = ROOT) -> bool:
        """End a node at once; no handler is asked. Tells whether it was there."""
        if not self._is_there(exid, nid):
            return False
        self._put(exid, "cancel", nid=nid, flavour="kill")
        return True

    def signal(self, exid: str, name: str, payload: Payload | None = None) -> None:
        """Send a signal; it is not kept, so without a trap it has no effect."""
        self._put(exid, "signal", name=name, payload=check_payload(payload or {}))

    def re_apply(
        self, exid: str, nid: str, flow: str | Tree, payload: Payload | None = None
    ) -> None:
        """Cancel a node and execute another flow in its place."""
        execute: Message = {
            "point": "execute",
            "exid": exid,
            "nid": nid,
            "from": "parent",
            "tree": _tree(flow),
        }
        _storable(execute["tree"])
        fields: Message = {} if payload is None else {"payload": check_payload(payload)}
        self._put(exid, "cancel", nid=nid, on_receive_last=[{**execute, **fields}], **fields)

    def add_branches(self, exid: str, nid: str, flows: Sequence[str | Tree]) -> None:
        """Give a concurrence more branches, after those that it has.

        `nid` is that of the concurrence.
        """
        node = self.execution(exid).state.nodes.get(nid)
        if node is None:
            msg = f"there is no node {nid} in {exid} to add branches to"
            raise MessageRefused(msg)
        trees = [_tree(flow) for flow in flows]
        self._put(exid, "add", nid=nid, tnid=f"{nid}_{self._branches(exid, nid)}", trees=trees)

    def _branches(self, exid: str, nid: str) -> int:
        """Count the children that a node has in its tree."""
        nodes = self.execution(exid).state.nodes
        node = nodes[nid]
        path: list[int] = []
        while node.tree is None:
            path.append(child_id(node.nid))
            node = nodes[node.parent or ROOT]
        tree = node.tree
        for position in reversed(path):
            tree = tree[1][position]
        return len(tree[1])

    def add_iterations(self, exid: str, nid: str, elements: Sequence[Any]) -> None:
        """Give an iterator (map, for-each, ...) more elements."""
        self._put(exid, "add", nid=nid, elements=list(elements))

    def return_task(self, exid: str, nid: str, payload: Payload | None = None) -> None:
        """Give back the task that a node waits for; without a payload, as it was handed out.

        Raises:
            MessageRefused: it was given back already, or cancelled.
            BadPayload: the payload is not a JSON object.

        """
        node = self.execution(exid).state.nodes.get(nid)
        handed = None if node is None else node.own.get("handed")
        if handed is None:
            why = "there is no such task" if node is not None else "its node is gone"
            msg = f"the task at node {nid} of {exid} cannot be given back: {why}"
            raise MessageRefused(msg)
        task = task_id(exid, nid, handed[0])
        if payload is None:
            row = self._engine.taskers.row(task)
            payload = {} if row is None else bodies.decode(row.body)["payload"]
        if not self._engine.taskers.succeed(task, check_payload(payload)):
            msg = f"the task at node {nid} of {exid} was given back already, or cancelled"
            raise MessageRefused(msg)

    def _put(self, exid: str, point: str, **fields: Any) -> None:
        """Send a message and return when what it led to is committed."""
        self.execution(exid)  # refuses unknown ids
        processed = ThreadTicket()
        message = {"point": point, "exid": exid, **fields}
        self._engine.append(exid, None, (message,), processed=processed)
        self._engine.await_ticket(processed, None, message)

    # -- registering --------------------------------------------------------------------------

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
        value becomes its `ret`, and `HOLD` says that the answer comes later.

        Args:
            name: as flows and workflows write it.
            do: the function; what it raises fails the task, after `retries`.
            domain: for flows: seen in this domain and below; the deepest of a name wins.
            include_vars: for flows: whether `task.vars` holds the variables seen from the node.
            cancellable: for flows: whether a cancelled task ends at once; else it ends when the
                tasker answers.
            options: those of the engine's taskers: `concurrency`, `retries`, `backoff`,
                `timeout`, `behaviour`, `throttle`, `executor`, `on_cancel`.

        """
        known = qualified(domain, name)
        if isinstance(do, str):
            from actorflow.engine.tasks.http import http_tasker  # noqa: PLC0415 - loads urllib

            do = http_tasker(do, options.get("timeout"))
        BareEngine.tasker(self._engine, known, adapt(do), **options)
        self.directory.add(known, include_vars=include_vars, cancellable=cancellable)

    def router(self, route: Callable[[Message], Any], *, domain: str = "") -> None:
        """Have a function say who gets the tasks of a domain, and of those below it.

        It gets the task message and returns the name of a tasker, `True` for the one that was
        asked for, or `False` for nobody. It runs inside the run: no effects, no waiting.
        """
        self.directory.route(domain, route)

    def subflow(self, name: str, flow: str | Tree, *, domain: str = "") -> None:
        """Make a flow known, for `graft` and `import`."""
        self.library.add_subflow(domain, name, _tree(flow))

    def define(self, name: str, value: Any, *, domain: str = "") -> None:
        """Make a variable known to all executions of a domain and below; flows only read it."""
        self.library.add_variable(domain, name, check_payload({"value": value})["value"])


@functools.lru_cache(maxsize=256)
def _parsed(text: str) -> Tree:
    return parse(text)


def _closed() -> EngineClosed:
    return EngineClosed("the engine was closed before it happened")


def _tree(flow: str | Tree) -> Tree:
    """Return the tree of a text, or a tree as it is; trees are never changed."""
    if isinstance(flow, str):
        return _parsed(flow)
    for stray in strays(flow):
        where = "" if stray is flow else f", in which {stray!r:.100} is no [head, content, line]"
        msg = f"a flow is its text, or the tree that parse() gives, not {flow!r:.100}{where}"
        raise FlowError(msg)
    return flow


def _storable(tree: Tree) -> bytes:
    """Return the bytes of a tree. Raises FlowError when something in it cannot be stored."""
    try:
        return tree_bytes(tree)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        msg = f"the flow cannot be stored: {error}"
        raise FlowError(msg) from None
