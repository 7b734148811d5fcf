"""Spans of OpenTelemetry: batches of workers, runs and decisions of executions, attempts at tasks.

The context of a sender is stored with its message, as the bytes of a W3C `traceparent`. So a run
continues the trace of the first message in its batch, on whichever machine it happens, and has
links to the others. What a run emits carries the context of the run.

Nothing here is called unless `trace()` has been: other modules look at `TRACER` once.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import kind_of
from actorflow.runtime.errors import BadOption, install_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

__all__ = ["TRACER", "Span", "Tracer", "trace", "traced_job"]

TRACER: Tracer | None = None
"""Makes the spans of this process; `None`: there are none."""

_TRACE, _SPAN = 16, 8  # bytes of their ids


class Span:
    """A span that begins in one thread and may end in another."""

    __slots__ = ("_api", "_span")

    def __init__(self, api: Any, span: Any) -> None:
        self._api = api
        self._span = span

    @contextmanager
    def current(self) -> Iterator[None]:
        """Let it be the parent of the spans that code in this block begins."""
        with self._api.use_span(
            self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False
        ):
            yield

    def end(self, error: BaseException | None = None) -> None:
        """End it; the first call counts."""
        if error is not None:
            self._span.record_exception(error)
            self._span.set_status(self._api.StatusCode.ERROR, kind_of(error))
        if self._span.is_recording():
            self._span.end()


class Tracer:
    """Makes spans with a provider of OpenTelemetry; `close()` ends that.

    Args:
        provider: a `TracerProvider`; by default the global one.

    Raises:
        BadOption: OpenTelemetry is not installed, or spans are made already.

    """

    def __init__(self, provider: Any = None) -> None:
        try:
            from opentelemetry import trace as api  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise BadOption(f"trace() needs OpenTelemetry: {install_hint('otel')}") from error
        self._api = api
        self._tracer = api.get_tracer("actorflow", tracer_provider=provider)

    def carry(self) -> bytes:
        """Return the context of the caller as bytes; none if there is no span."""
        context = self._api.get_current_span().get_span_context()
        if not context.is_valid:
            return b""
        return bytes(
            context.trace_id.to_bytes(_TRACE, "big")
            + context.span_id.to_bytes(_SPAN, "big")
            + bytes((context.trace_flags,))
        )

    def start(
        self, name: str, attributes: Mapping[str, Any], carried: Sequence[bytes] = ()
    ) -> Span:
        """Begin a span: a child of the first context, with links to the others.

        Without any, it is a child of the current span.
        """
        contexts = [self._context(each) for each in dict.fromkeys(carried) if each]
        parent = None
        if contexts:
            parent = self._api.set_span_in_context(self._api.NonRecordingSpan(contexts[0]))
        span = self._tracer.start_span(
            name,
            context=parent,
            attributes=dict(attributes),
            links=[self._api.Link(each) for each in contexts[1:]],
        )
        return Span(self._api, span)

    def _context(self, carried: bytes) -> Any:
        return self._api.SpanContext(
            int.from_bytes(carried[:_TRACE], "big"),
            int.from_bytes(carried[_TRACE : _TRACE + _SPAN], "big"),
            is_remote=True,
            trace_flags=self._api.TraceFlags(carried[_TRACE + _SPAN]),
        )

    def close(self) -> None:
        """Make no more spans. Idempotent."""
        global TRACER  # noqa: PLW0603 - of this process
        if TRACER is self:
            TRACER = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def trace(provider: Any = None) -> Tracer:
    """Make spans for OpenTelemetry from now on, in this process.

    Call it before workers are spawned: a worker that is older makes no `batch` spans.
    Engines make spans of runs, decisions and tasks at once.

    Args:
        provider: a `TracerProvider`; by default the global one.

    Raises:
        BadOption: OpenTelemetry is not installed, or `trace()` was called before.

    """
    global TRACER  # noqa: PLW0603 - of this process
    if TRACER is not None:
        raise BadOption("trace() was called before: close() what it has returned first")
    TRACER = Tracer(provider)
    return TRACER


def traced_job(job: Callable[..., Any], name: object) -> Callable[..., Any]:
    """Return a job that makes a span for each batch, while there is a tracer.

    A class, and a job of this library, is returned as it is.
    """
    module = getattr(job, "__module__", None) or ""
    if not inspect.isroutine(job) or module.partition(".")[0] == "actorflow":
        return job
    shown = str(name or getattr(job, "__qualname__", "worker"))

    def start(batch: Any) -> Span | None:
        size = len(batch) if hasattr(batch, "__len__") else 1
        facts = {"actorflow.worker": shown, "actorflow.batch.size": size}
        return None if TRACER is None else TRACER.start(f"batch {shown}", facts)

    @wraps(job)
    def traced(batch: Any, *rest: Any, **named: Any) -> Any:
        span = start(batch)
        if span is None:
            return job(batch, *rest, **named)
        try:
            with span.current():
                result = job(batch, *rest, **named)
        except BaseException as error:
            span.end(error)
            raise
        span.end()
        return result

    @wraps(job)
    async def traced_coroutine(batch: Any, *rest: Any, **named: Any) -> Any:
        span = start(batch)
        if span is None:
            return await job(batch, *rest, **named)
        try:
            with span.current():
                result = await job(batch, *rest, **named)
        except BaseException as error:
            span.end(error)
            raise
        span.end()
        return result

    return traced_coroutine if inspect.iscoroutinefunction(job) else traced
