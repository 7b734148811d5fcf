"""The saved state of an inbox's behaviour, stored with the state of its execution.

Problem
    A deduplication window or a token bucket must survive a restart, and must agree with the
    messages that were committed: no earlier, no later.

Approach
    What `Behaviour.save` returns when a batch has run is put in front of the state of the
    execution, so the commit of the batch stores both or neither. The first byte is one that no
    msgpack text begins with: a state without anything saved is stored as it is.

Time
    Behaviours keep time by the clock of the worker, which differs between processes. Therefore the
    wall time of the save is stored as well, and a loaded behaviour first gets a time that lies as
    far in the past: a token bucket regains the tokens of the time when no process was running.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.engine import bodies

if TYPE_CHECKING:
    from actorflow.behaviours.behaviour import Behaviour

__all__ = ["restore", "split", "with_saved"]

_MARK = b"\xc1"
_LENGTH = 4


def with_saved(saved: Any, at: float, state: bytes) -> bytes:
    """Return the bytes of a state, preceded by what a behaviour has saved.

    Raises:
        NotStorable: the behaviour has saved something that is not plain data.

    """
    if saved is None:
        return state
    head = bodies.encode([at, saved])
    return b"".join((_MARK, len(head).to_bytes(_LENGTH, "big"), head, state))


def split(data: bytes) -> tuple[Any, bytes]:
    """Return the saved behaviour (`None` or `[time, saved]`) and the state.

    >>> saved, state = split(with_saved({"a": 1}, 5.0, b"rest"))
    >>> saved, state, split(b"rest")
    ([5.0, {'a': 1}], b'rest', (None, b'rest'))
    """
    if data[:1] != _MARK:
        return None, data
    start = 1 + _LENGTH
    end = start + int.from_bytes(data[1:start], "big")
    return bodies.decode(data[start:end]), data[end:]


def restore(behaviour: Behaviour, data: bytes | None, *, wall: float, now: float) -> None:
    """Load the saved data, if any, into an empty behaviour.

    Args:
        behaviour: it must have the trait `saves`.
        data: the stored bytes of the execution's state.
        wall: the time of the engine.
        now: the time of the worker.

    """
    saved = None if data is None else split(bytes(data))[0]
    if saved is not None:
        at, state = saved
        behaviour.load(state)
        behaviour.ready_at(now - max(wall - at, 0.0))
