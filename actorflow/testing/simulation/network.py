"""The network between workers, clients and the store: late, lossy, split and healed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import StoreRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actorflow.testing.simulation.faults import Faults
    from actorflow.testing.simulation.store import SharedStore
    from actorflow.testing.simulation.world import World

__all__ = ["STORE", "Network", "Unanswered"]

STORE = "store"
_TIMEOUT = 1.0  # seconds after which a request to the store counts as unanswered
_SLOW = 20.0  # times longer


class Unanswered(StoreRefused):
    """No answer came in time: whether the store has done it is not known."""


class Network:
    """Carries messages and requests.

    Faults apply until `heal()`.
    """

    def __init__(self, world: World, faults: Faults, store: SharedStore) -> None:
        self._world = world
        self._faults = faults
        self._store = store
        self._dice = world.dice("network")
        self._cut: dict[int, frozenset[str]] = {}
        self._cuts = 0
        self._healed = False
        self.store_down = 0
        self.store_slow = 0

    def heal(self) -> None:
        """End all faults."""
        self._healed = True
        self._cut.clear()
        self.store_down = self.store_slow = 0

    def cut(self, names: Iterable[str]) -> int:
        """Cut some workers off from everybody else; return a number for `mend`."""
        self._cuts += 1
        self._cut[self._cuts] = frozenset(names)
        return self._cuts

    def mend(self, number: int) -> None:
        """Connect them again."""
        self._cut.pop(number, None)

    def connects(self, one: str, other: str) -> bool:
        """Return whether two nodes can reach each other."""
        return all((one in side) == (other in side) for side in self._cut.values())

    def send(self, source: str, target: str, deliver: Callable[[], None]) -> bool:
        """Carry a message; return whether it is under way."""
        if not self.connects(source, target):
            return False
        dice, faults = self._dice, self._faults
        copies = 1
        if not self._healed:
            if dice.random() < faults.loss:
                return True  # nobody knows
            copies += dice.random() < faults.duplication
        for _ in range(copies):
            self._world.after(self._delay(faults.delay), deliver)
        return True

    def is_heard(self) -> bool:
        """Return whether a wake-up from the store reaches its owner: some connections have none."""
        return self._healed or self._dice.random() >= self._faults.unheard

    def _delay(self, span: tuple[float, float]) -> float:
        if self._healed:
            return self._dice.uniform(0.001, 0.01)
        # Most are quick: the square keeps the long ones rare.
        return span[0] + (span[1] - span[0]) * self._dice.random() ** 2

    # The store.

    def ask(
        self,
        source: str,
        request: Callable[[int], Any],
        then: Callable[[Any], None],
        *,
        open_for: float = 0.0,
    ) -> None:
        """Pass a request to the store; `then` gets its answer, or the error.

        The request gets the number of its transaction, which begins when it arrives. It is carried
        out some time later, after `open_for` seconds at least: transactions do not end in the order
        in which they began.
        """
        asked = _Request(self, source, request, then, open_for)
        if self.connects(source, STORE):
            self._world.after(self._store_delay(), asked.arrive)
        unanswered = Unanswered(f"no answer within {_TIMEOUT} s")
        self._world.after(_TIMEOUT, lambda: asked.answer(unanswered))

    def begin(self, asked: _Request) -> None:
        """Apply a request to the store."""
        if not self.connects(asked.source, STORE):
            return
        if self.store_down:
            self._reply(asked, StoreRefused("the store is down"))
            return
        number = self._store.begin()
        self._world.after(
            asked.open_for + self._store_delay(), lambda: self._carry_out(asked, number)
        )

    def _carry_out(self, asked: _Request, number: int) -> None:
        if self.store_down:  # it crashed meanwhile: nothing was written
            return
        try:
            result = asked.request(number)
        except StoreRefused as error:
            result = error
        if self._healed or self._dice.random() >= self._faults.store_loss:
            self._reply(asked, result)

    def _reply(self, asked: _Request, result: Any) -> None:
        def arrive() -> None:
            if self.connects(asked.source, STORE):
                asked.answer(result)

        self._world.after(self._store_delay(), arrive)

    def _store_delay(self) -> float:
        return self._delay(self._faults.store_delay) * (_SLOW if self.store_slow else 1.0)


class _Request:
    """A request to the store, on its way there and back."""

    __slots__ = ("_answered", "_network", "_then", "open_for", "request", "source")

    def __init__(
        self,
        network: Network,
        source: str,
        request: Callable[[int], Any],
        then: Callable[[Any], None],
        open_for: float,
    ) -> None:
        self._network = network
        self._then = then
        self._answered = False
        self.source = source
        self.request = request
        self.open_for = open_for

    def arrive(self) -> None:
        """Reach the store."""
        self._network.begin(self)

    def answer(self, result: Any) -> None:
        """Bring an answer back; the first one counts."""
        if not self._answered:
            self._answered = True
            self._then(result)
