"""How a tasker tries: how often, after which errors, and how long an attempt may take."""

from __future__ import annotations

from typing import Any

from actorflow.behaviours.arguments import count, seconds
from actorflow.engine.errors import BadResult, TaskCrashed, TaskTimeout
from actorflow.runtime.errors import BadOption
from actorflow.runtime.restarts import Backoff

__all__ = ["AttemptRules", "exceptions"]


def exceptions(
    given: Any, name: str, error: type[Exception] = BadOption
) -> tuple[type[BaseException], ...]:
    """Return exception classes, given as one or several.

    Raises:
        BadOption: something else is among them; or `error`.

    """
    found: tuple[Any, ...] = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    for each in found:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            msg = f"{name}={given!r:.80}: give exception classes, as in {name}=(OSError,)"
            raise error(msg)
    return found


class AttemptRules:
    """The rules of one tasker, validated. See `Engine.tasker` for the options.

    With `renews`, a heartbeat extends the timeout, unless `heartbeat` is given. With `may_hang`, a
    task that is cancelled makes room for others at once, because a time limit may be the cause.
    """

    __slots__ = (
        "_give_up_on", "_retry_on", "backoff", "heartbeat", "may_hang", "renews", "retries",
        "timeout",
    )  # fmt: skip

    OPTIONS = (
        "retries", "backoff", "timeout", "heartbeat", "retry_on", "give_up_on", "renews",
        "may_hang",
    )  # fmt: skip

    def __init__(
        self,
        *,
        retries: int = 0,
        backoff: Backoff | None = None,
        timeout: float | None = None,
        heartbeat: float | None = None,
        retry_on: Any = None,
        give_up_on: Any = (),
        renews: bool = True,
        may_hang: bool = False,
    ) -> None:
        self.retries = count(retries, "retries", "retries=3", least=0, error=BadOption)
        if timeout is not None:
            seconds(timeout, "timeout", "timeout=60.0", zero=False, error=BadOption)
        if heartbeat is not None:
            seconds(heartbeat, "heartbeat", "heartbeat=30.0", zero=False, error=BadOption)
        pause: object = backoff
        if not isinstance(pause, Backoff | None):
            msg = f"backoff={pause!r:.80} must be a Backoff, as in af.Backoff(initial=1.0)"
            raise BadOption(msg)
        self.backoff = backoff or Backoff(initial=1.0, maximum=300.0, jitter=0.1)
        self.timeout = timeout
        self.heartbeat = heartbeat
        self.renews = renews
        self.may_hang = may_hang or timeout is not None or heartbeat is not None
        """Whether an attempt may end before its function returns."""
        self._retry_on = None if retry_on is None else exceptions(retry_on, "retry_on")
        self._give_up_on = exceptions(give_up_on, "give_up_on")

    def gives_up_on(self, error: BaseException) -> bool:
        """Return whether an attempt that failed this way is the last."""
        if isinstance(error, (self._give_up_on, BadResult)):
            return True
        if self._retry_on is None or isinstance(error, (TaskCrashed, TaskTimeout)):
            return False
        return not isinstance(error, self._retry_on)

    def timeout_of(self, row_timeout: float | None) -> float | None:
        """Return the seconds that one attempt has, of a task that may have its own."""
        return self.timeout if row_timeout is None else row_timeout

    def lease_of(self, row_timeout: float | None) -> float | None:
        """Return the seconds that an attempt has until its next heartbeat."""
        if self.heartbeat is not None:
            return self.heartbeat
        return self.timeout_of(row_timeout) if self.renews else None

    def limit_of(self, row_timeout: float | None) -> float | None:
        """Return the seconds after which an attempt ends, whatever it reports."""
        if self.heartbeat is None and self.renews:
            return None
        return self.timeout_of(row_timeout)
