"""What a pool is given and what it returns: `ProcessCall` and `CallEnded`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from actorflow.behaviours.arguments import count, seconds
from actorflow.behaviours.errors import brief
from actorflow.runtime.errors import BadOption
from actorflow.runtime.processes.packed import Packed, pack

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = ["NO_OUTPUT", "CallEnded", "CallOutcome", "Output", "ProcessCall", "RemoteTraceback"]


class CallOutcome(Enum):
    """How a call ended."""

    OK = "ok"
    """The function returned."""
    FAILED = "failed"
    """The function raised, or what it returned cannot be sent back."""
    CRASHED = "crashed"
    """The process ended during the call, or no process could be started for it."""
    TIMED_OUT = "timed_out"
    """The call took longer than its `timeout`, and its process was killed."""
    CANCELLED = "cancelled"
    """`ProcessPool.cancel` or `ProcessPool.close` ended the call."""


@dataclass(slots=True, eq=False)
class ProcessCall:
    """One call of a function in a worker process.

    >>> ProcessCall.of("a", round, 2.6, timeout=5.0).timeout
    5.0
    """

    id: Hashable
    """Unique among the calls that have not ended."""
    payload: Packed
    """The function and its arguments, from `pack`."""
    _: KW_ONLY
    timeout: float | None = None
    """Seconds from the start of the call; then its process is killed."""
    memory: int | tuple[int, ...] | None = None
    """Bytes that the process may map during the call (`RLIMIT_AS`), beyond those it has when it
    starts; a tuple has one limit for each attempt, and the last one is for all later attempts."""
    cpu: float | None = None
    """Seconds of CPU time for the call; the process is killed when they are used up."""
    attempt: int = 1
    """1 for the first: it selects the limit in `memory`."""
    crashes_max: int = 0
    """How many crashes the pool answers with another attempt before it reports the call."""
    heartbeat: Callable[..., bool] | None = None
    """Called in the pool's thread when the function calls `heartbeat(*values)`, which returns the
    same."""

    @classmethod
    def of(
        cls,
        id: Hashable,  # noqa: A002 - the word of the contract
        function: Callable[..., Any],
        *args: Any,
        timeout: float | None = None,
        memory: int | tuple[int, ...] | None = None,
        **kwargs: Any,
    ) -> ProcessCall:
        """Pack a function and its arguments.

        Raises:
            BadJob: they cannot be sent to another process.

        """
        return cls(id, pack(function, args, kwargs), timeout=timeout, memory=memory)

    def check(self) -> None:
        """Validate the options.

        Raises:
            BadOption: one has a value that cannot work.

        """
        payload: Any = self.payload
        if not isinstance(payload, Packed):
            msg = f"payload={brief(payload)} must come from pack(function, args, kwargs)"
            raise BadOption(msg)
        for name, value in (("timeout", self.timeout), ("cpu", self.cpu)):
            if value is not None:
                seconds(value, name, f"Call(id, payload, {name}=5.0)", zero=False, error=BadOption)
        if self.memory is not None:
            given = self.memory if isinstance(self.memory, tuple) else (self.memory,)
            if not given:
                msg = "memory=() has no limit in it; give one for each attempt, or None"
                raise BadOption(msg)
            for each in given:
                count(each, "memory", "Call(id, payload, memory=2**30)", error=BadOption)
        count(self.attempt, "attempt", "Call(id, payload, attempt=2)", error=BadOption)
        count(
            self.crashes_max,
            "crashes_max",
            "Call(id, payload, crashes_max=3)",
            least=0,
            error=BadOption,
        )


class Output(NamedTuple):
    """What a function has printed."""

    stdout: str
    stderr: str


NO_OUTPUT = Output("", "")


@dataclass(slots=True, eq=False)
class CallEnded:
    """How a call has ended."""

    id: Hashable
    outcome: CallOutcome
    _: KW_ONLY
    worker: int | None = None
    """The place in the pool, from 1 to `max`: a renewed process has that of its predecessor."""
    pid: int | None = None
    result: Any = None
    error: BaseException | None = None
    """What the function raised, with the traceback of the other process as its `__cause__`; or why
    it crashed, timed out or was cancelled. `None` if it is ok."""
    started: float | None = None
    """When the function was called, as `time.time()`; `None` if it never was."""
    ended: float = 0.0
    """When it was over, as `time.time()`."""
    output: Output = NO_OUTPUT
    """What it printed; what a process that was killed had printed is lost."""
    warnings: tuple[str, ...] = ()
    """The warnings that it issued, as text."""
    crashes: int = 0
    """How many processes have crashed during this call."""

    @property
    def ok(self) -> bool:
        """Whether there is a result."""
        return self.outcome is CallOutcome.OK

    @property
    def traceback(self) -> str:
        """The traceback of the other process as text; empty without one."""
        cause = None if self.error is None else self.error.__cause__
        return str(cause) if isinstance(cause, RemoteTraceback) else ""


class RemoteTraceback(Exception):
    """The traceback of another process, as text: the `__cause__` of what its function raised."""

    def __init__(self, text: str) -> None:
        super().__init__(text)

    def __str__(self) -> str:
        return f"\n{self.args[0].rstrip()}"
