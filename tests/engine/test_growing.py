"""States that grow: a kind returns only the additions, and gets the whole state back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from actorflow.engine import bodies
from actorflow.engine.kind import Addition, Message, Options, Outcome, Status
from actorflow.engine.operations.export import export_lines, import_lines
from actorflow.engine.stores.memory import MemoryStore
from actorflow.testing.kinds import check_kind
from tests.engine.kinds import PATIENCE, quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actorflow.engine.engine import BareEngine
    from actorflow.engine.kind import Context


class Log:
    """Lines, of which each run adds some; every fourth run writes all of them."""

    name = "log"

    def options(self, _execution: str) -> Options:
        return Options()

    def decode(self, data: bytes | None) -> tuple[bytes, bytes | None]:
        return data or b"", None

    def encode(self, state: tuple[bytes, bytes | None]) -> bytes | Addition:
        whole, added = state
        return whole if added is None else Addition(added)

    def view(self, row: Any, _store: Any) -> list[str]:
        return (row.state or b"").decode().split()

    def run(self, _context: Context, state: tuple[bytes, bytes | None], batch: Any) -> Outcome:
        messages: Sequence[Message] = batch
        added = b"".join(bodies.encode(str(each.body))[1:] + b"\n" for each in messages)
        whole = state[0] + added
        ended = any(each.body == "end" for each in messages)
        status = Status.DONE if ended else Status.ACTIVE
        return Outcome(state=(whole, None if whole.count(b"\n") % 4 == 0 else added), status=status)


def test_a_kind_whose_state_grows_is_one_that_an_engine_can_rely_on() -> None:
    check_kind(Log, messages=st.sampled_from(["a", "b", "end"]), max_examples=30)


def send(engine: BareEngine, *texts: str) -> None:
    for text in texts:
        engine.send("it", text, kind="log")
        quiet(engine)


def test_a_state_grows_over_restarts(reopen: Callable[..., BareEngine]) -> None:
    lines: list[str] = []
    for part in range(5):
        engine = reopen()
        engine.register(Log())
        engine.resume()
        for number in range(part + 1):
            lines.append(f"{part}.{number}")
            send(engine, lines[-1])
            assert engine.execution("it").view == lines
    copy = MemoryStore()
    import_lines(copy, export_lines(engine.parts.store))
    row = copy.execution("it")
    assert row is not None
    assert Log().view(row, copy) == lines
    engine.send("it", "end")
    assert engine.wait("it", PATIENCE).view == [*lines, "end"]
