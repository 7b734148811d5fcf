"""The errors of the runtime: one base, a short tree, each message with what to do about it."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import pykka

from actorflow.behaviours.errors import (
    ActorflowError,
    AlreadyUsed,
    BadBehaviour,
    Displaced,
    Dropped,
    Duplicate,
    Expired,
    Full,
    Malformed,
    Rejected,
    Replaced,
    WouldBlock,
    brief,
    kind_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "ActorflowError",
    "AlreadyStarted",
    "AlreadyUsed",
    "AnswerTimeout",
    "BadBehaviour",
    "BadJob",
    "BadOption",
    "Displaced",
    "Dropped",
    "Duplicate",
    "Expired",
    "Full",
    "LaunchFailed",
    "LoopBlocked",
    "Malformed",
    "MissingExtra",
    "NotHandling",
    "NotParked",
    "NotSendable",
    "ProcessCancelled",
    "ProcessCrashed",
    "ProcessTimeout",
    "PushTimeout",
    "Rejected",
    "Replaced",
    "RequestRefused",
    "StartFailed",
    "StopTimeout",
    "UnknownWorker",
    "WorkerCrashed",
    "WorkerStopped",
    "WouldBlock",
    "WouldDeadlock",
    "install_hint",
    "kind_and_text",
    "near",
    "refuse_unhashable",
    "shortened",
    "text_of",
    "told_with_place",
]


class WorkerStopped(ActorflowError, pykka.ActorDeadError):
    """The worker (or actor) has stopped, so this message will not be processed.

    You get it from every push after the stop, and from a waiting `push_ack` or `push_block`
    whose message was still accumulated when the worker stopped. You do not get it for messages
    that `stop(drain=True)` still processed.
    """


class WorkerCrashed(WorkerStopped):
    """The worker died of an exception in its job; the exception is the `__cause__`.

    The callers whose messages were in the failing batch get that exception itself. Everybody
    else (messages still accumulated, later pushes) gets this.
    """


class StartFailed(ActorflowError):
    """An actor could not start: its `on_start` raised or asked to stop; see `reason`."""

    def __init__(self, what: str, reason: object) -> None:
        super().__init__(f"{what} did not start: {reason}")
        self.reason = reason


class AlreadyStarted(ActorflowError):
    """A worker of that name is running already; `ref` is that one."""

    def __init__(self, name: object, ref: Any) -> None:
        super().__init__(
            f"a worker named {name!r} is running already; use af.whereis({name!r}), "
            "stop it first, or choose another name"
        )
        self.name = name
        self.ref = ref


class PushTimeout(ActorflowError, TimeoutError):
    """The answer did not come in time. The message is still accumulated and will be processed."""


class AnswerTimeout(PushTimeout, pykka.Timeout):
    """A worker did not answer in time. The message is withdrawn, unless its batch runs already."""


class StopTimeout(ActorflowError, TimeoutError):
    """It did not stop in time: a worker was cut off, a supervisor goes on stopping."""


class NotHandling(ActorflowError, RuntimeError):
    """`stash`, `unstash_all` or `current_inbox` was called where nothing is being handled."""


class NotParked(ActorflowError):
    """Only a worker that is paused, or whose breaker has tripped, can be resumed."""


class WouldDeadlock(ActorflowError):
    """The call would wait for the actor that makes it."""


class LoopBlocked(ActorflowError, BlockingIOError):
    """The call would have to wait, and block the event loop that is running in this thread."""


class BadJob(ActorflowError, TypeError):
    """The given job cannot be called with a batch and a state."""


class BadOption(ActorflowError, ValueError):
    """An option has a value that cannot work."""


class MissingExtra(ActorflowError, ImportError):
    """A package of an extra is not installed; the message says which extra to install."""


class ProcessCrashed(ActorflowError):
    """The process ended during a call: killed, out of memory, a fault in C, `os._exit`.

    Only the call that it was running gets this; its reserved calls run elsewhere.
    `exitcode` is as in multiprocessing: negative for a signal, `None` if nobody knows.
    """

    def __init__(self, text: str, exitcode: int | None = None) -> None:
        super().__init__(text)
        self.exitcode = exitcode


class ProcessTimeout(ActorflowError, TimeoutError):
    """A call took longer than its timeout, and its process was killed."""


class ProcessCancelled(ActorflowError):
    """A call was cancelled, or its pool closed, before it ended."""


class LaunchFailed(ProcessCrashed):
    """No process could be started, so a call was never made; the message says why."""


class NotSendable(ActorflowError, TypeError):
    """What a function returned or raised in another process cannot be sent back from there."""


class RequestRefused(ActorflowError):
    """A supervisor did not grant a request, and nothing has changed; `why` is a `RequestRefusal`.

    `ref` is the child that is in the way, `reason` why a start failed, where there is one.
    """

    def __init__(
        self, why: Any, *, ref: Any = None, reason: Any = None, asked: str = "", of: str = ""
    ) -> None:
        text = f"{asked or 'the request'} was refused{' by ' + of if of else ''}: {why.value}"
        if ref is not None:
            text += f" ({ref!r})"
        if reason is not None:
            text += f": {reason.describe()}"
        super().__init__(text)
        self.why = why
        self.ref = ref
        self.reason = reason
        self.__cause__ = getattr(reason, "exception", None)


class UnknownWorker(ActorflowError, KeyError):
    """The server has no worker of that id."""

    def __init__(self, worker_id: object, known: Iterable[object]) -> None:
        known = list(known)
        super().__init__(worker_id)
        self.worker_id = worker_id
        self.known = known

    def __str__(self) -> str:
        hint = near(self.worker_id, self.known)
        return f"no worker {self.worker_id!r} here{hint}"


def refuse_unhashable(given: object, what: str) -> None:
    """Refuse a name or an id that cannot be looked up.

    Raises:
        BadOption: it cannot be hashed.

    """
    try:
        hash(given)
    except TypeError:
        msg = f"{what}={given!r:.200} cannot be hashed; use a string, a number or a tuple of them"
        raise BadOption(msg) from None


def install_hint(extra: str) -> str:
    """Return the command that installs an extra: from where this package was installed."""
    from actorflow.runtime.installation import checkout, installed_from  # noqa: PLC0415 - slow

    source = installed_from()
    if source is None:
        return f"pip install 'actorflow[{extra}]'"
    if "://" in source:
        return f"pip install 'actorflow[{extra}] @ {source}'"
    return f"pip install {'' if checkout() is None else '-e '}'{source}[{extra}]'"


def near(given: object, known: Iterable[object]) -> str:
    """Say which of the known names is meant, as the end of an error message."""
    names = {str(name): repr(name) for name in known}
    close = difflib.get_close_matches(str(given), names, n=3, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(names[name] for name in close)}?"
    if not names:
        return "; there are none at all"
    shown = ", ".join(list(names.values())[:10])
    return f"; there are {shown}{', ...' if len(names) > 10 else ''}"  # noqa: PLR2004


_LONGEST = 16 * 1024


def shortened(text: str, most: int = _LONGEST) -> str:
    """Return a string without its middle if it has more than `most` characters."""
    left_out = len(text) - most
    if left_out <= 0:
        return text
    return f"{text[: most // 2]}\n... {left_out} characters were left out ...\n{text[-most // 2 :]}"


def text_of(error: BaseException) -> str:
    """Return the text of an error, even if its `str` raises or returns megabytes.

    >>> class Rude(Exception):
    ...     def __str__(self):
    ...         raise ValueError
    >>> text_of(Rude())
    'Rude()'
    """
    try:
        text = str.__str__(str(error))  # a plain string, if the class returns one of its own kind
    except BaseException:  # noqa: BLE001 - the error is reported, whatever its class does
        text = brief(error)
    return encodable(shortened(text))


def encodable(text: str) -> str:
    """Return a string that UTF-8 can encode: a lone surrogate is escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def kind_and_text(error: BaseException) -> str:
    """Return the class and the text of an error: `ValueError: no disk`."""
    return f"{kind_of(error)}: {text_of(error)}"


def traceback_of(error: BaseException, *, limit: int | None = None, stack: Any = None) -> str:
    """Return the traceback of an error as a text that can be stored. Never raises.

    Args:
        error: what was raised.
        limit: how many frames it shows; the innermost ones if negative.
        stack: the traceback to begin with, if not the error's own.

    """
    import traceback  # noqa: PLC0415 - keeps the import light

    try:
        lines = traceback.format_exception(type(error), error, stack or error.__traceback__, limit)
    except BaseException as why:  # noqa: BLE001 - an attribute of the error may raise
        return f"{kind_and_text(error)}\n(its traceback cannot be shown: {kind_and_text(why)})\n"
    return encodable(shortened("".join(lines)))


def told_with_place(error: BaseException) -> str:
    """Return what a user's code raised and where, in place of a traceback through our own code."""
    import importlib  # noqa: PLC0415 - keeps the import light
    import traceback  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    ours = Path(__file__).parent.parent
    strange = (f"{ours}", f"{Path(importlib.__file__).parent}", "<frozen")
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(strange)]
    place = f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""
    return f"{kind_and_text(error)}{place}"
