"""A client of the cluster: sends messages until they are acknowledged, and cancels executions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.engine import bodies
from actorflow.engine.errors import StoreRefused
from actorflow.engine.execution.run import message_to_parent
from actorflow.engine.kind import ENDED, Status
from actorflow.engine.stores.protocol import Change, NewExecution, NewMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.stores.protocol import ExecutionRow
    from actorflow.testing.simulation.cluster import Cluster

__all__ = ["Cancel", "Client", "Sent"]

_AGAIN = 0.3  # seconds


class Sent(NamedTuple):
    """A message from outside. The execution is created if it is not there."""

    execution: str
    body: Any
    kind: str | None = None
    """`None`: the first of the kinds that are simulated."""
    at: float | None = None
    """When it is sent, in seconds since the beginning; drawn from the seed by default."""
    in_order: bool = False
    """It is sent after those before it to the same execution are acknowledged."""


class Cancel(NamedTuple):
    """An execution is ended from outside, whatever it does."""

    execution: str
    at: float | None = None


class Client:
    """Insists: asks again until it has an answer, with a key, so that nothing is sent twice."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._dice = cluster.world.dice("client")
        self.waiting = 0
        """Requests that are not acknowledged yet."""
        self._before: dict[int, set[int]] = {}

    def plan(self, sent: Sequence[Sent | Cancel]) -> None:
        """Note which messages wait for which others."""
        for number, each in enumerate(sent):
            if isinstance(each, Sent) and each.in_order:
                self._before[number] = {
                    earlier
                    for earlier, other in enumerate(sent[:number])
                    if isinstance(other, Sent) and other.execution == each.execution
                }

    def send(self, number: int, sent: Sent, kind: str) -> None:
        """Send a message until it is acknowledged."""
        self.waiting += 1
        self._send(number, sent, kind)

    def _send(self, number: int, sent: Sent, kind: str) -> None:
        cluster = self._cluster
        store = cluster.store
        if self._before.get(number):
            cluster.world.after(_AGAIN, lambda: self._send(number, sent, kind))
            return

        def attempt() -> None:
            change = Change(
                at=store.now,
                creates=(NewExecution(sent.execution, kind),),
                messages=(
                    NewMessage(
                        sent.execution, "message", bodies.encode(sent.body), f"client {number}"
                    ),
                ),
            )

            def request(transaction: int) -> Change:
                store.commit_as("client", transaction, [change])
                cluster.notify(sent.execution)
                return change

            # Some callers do other things in the same transaction, which stays open meanwhile.
            open_for = self._dice.choice((0.0, 0.0, 0.2, 0.7))
            cluster.network.ask("client", request, answered, open_for=open_for)

        def answered(result: Change | StoreRefused) -> None:
            if isinstance(result, StoreRefused):
                cluster.world.after(_AGAIN, attempt)
                return
            self.waiting -= 1
            row = result.rows[0]
            cluster.world.note("client", "was told that it is stored:", row.id, sent.execution)
            cluster.checks.acked[row.id] = sent.execution
            for others in self._before.values():
                others.discard(number)

        attempt()

    def cancel(self, execution: str) -> None:
        """End an execution, as `engine.cancel` does: on the revision that was read."""
        self.waiting += 1
        _Cancelling(self._cluster, self, execution).begin()


class _Cancelling:
    """The end of one execution, on its way."""

    def __init__(self, cluster: Cluster, client: Client, execution: str) -> None:
        self._cluster = cluster
        self._client = client
        self._execution = execution

    def begin(self) -> None:
        """Read the execution."""
        store = self._cluster.store
        self._ask(lambda _: store.execution(self._execution), self._found)

    def _ask(self, request: Callable[[int], Any], then: Callable[[Any], None]) -> None:
        self._cluster.network.ask("client", request, then)

    def _again(self) -> None:
        self._cluster.world.after(_AGAIN, self.begin)

    def _found(self, row: ExecutionRow | StoreRefused | None) -> None:
        if isinstance(row, StoreRefused):
            self._again()
        elif row is None or row.status in ENDED:
            self._client.waiting -= 1
        else:
            self._end(row)

    def _end(self, row: ExecutionRow) -> None:
        store = self._cluster.store
        change = Change(
            row.id, kind=row.kind, expected=row.revision, state=row.state, version=row.version,
            status=Status.CANCELLED, at=store.now, clear=True,
        )  # fmt: skip
        if row.parent is not None:
            change.messages = (message_to_parent(row.parent, row.id, Status.CANCELLED),)

        def request(transaction: int) -> Change:
            store.commit_as("client", transaction, [change])
            return change

        self._ask(request, self._ended)

    def _ended(self, result: Change | StoreRefused) -> None:
        if isinstance(result, StoreRefused) or not result.committed:
            self._again()
            return
        self._client.waiting -= 1
        self._cluster.world.note("client", "has cancelled", self._execution)
        self._cluster.checks.cancelled.add(self._execution)
