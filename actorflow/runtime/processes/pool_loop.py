"""The event loop of a process pool: it performs the policy's actions and reports events to it.

Approach
    `PoolPolicy` is pure: it decides which process gets which call, and when processes are started,
    renewed, killed or retired. This loop is its shell. One thread serves the sockets of all
    processes with a selector, so a pool of any size costs one thread in the parent.

Invariants
    1. Only this thread touches the policy, the sockets and the processes. Other threads append
       calls or functions to `_inbox` and wake it; both are atomic.
    2. Each submitted call ends exactly once: with its result, with an error, or in `sweep`, if it
       was appended after the thread had ended.
    3. Before it waits, the thread sets `_asleep` and then looks at `_inbox` once more. So a call
       appended in between is not left until the next event.
    4. If the loop itself fails, all calls end with an error: no caller waits forever.

Cost
    Results are unpickled and reported in this thread. Callbacks must therefore be short.
"""

from __future__ import annotations

import errno
import math
import selectors
import socket
import threading
import time
from collections import deque
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.errors import brief
from actorflow.runtime.clock import SYSTEM
from actorflow.runtime.errors import (
    LaunchFailed,
    NotSendable,
    ProcessCancelled,
    kind_and_text,
    text_of,
)
from actorflow.runtime.log import log
from actorflow.runtime.processes import wire
from actorflow.runtime.processes.call import CallEnded, CallOutcome, Output, RemoteTraceback
from actorflow.runtime.processes.launcher import how_it_ended
from actorflow.runtime.processes.memory import SharedPage
from actorflow.runtime.processes.packed import unpack
from actorflow.runtime.processes.policy.actions import (
    CheckProgress,
    EndCall,
    KillProcess,
    LaunchProcess,
    RetireProcess,
    SendCalls,
    SkipCalls,
)
from actorflow.runtime.processes.policy.entries import ProcessState

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from actorflow.runtime.clock import Clock, Timer
    from actorflow.runtime.processes.launcher import Handle, Launcher
    from actorflow.runtime.processes.packed import Packed
    from actorflow.runtime.processes.policy.actions import Action
    from actorflow.runtime.processes.policy.entries import PoolCall, ProcessEntry
    from actorflow.runtime.processes.policy.pool_policy import PoolPolicy

__all__ = ["PoolLoop"]

_READ = selectors.EVENT_READ
_BOTH = selectors.EVENT_READ | selectors.EVENT_WRITE


class _Process:
    """One process: its socket, its page and its handle."""

    __slots__ = ("channel", "handle", "member", "open", "page", "pid", "unfit", "writing")

    def __init__(
        self, member: ProcessEntry, channel: wire.Channel, page: SharedPage, handle: Handle
    ) -> None:
        self.member = member
        self.channel = channel
        self.page = page
        self.handle = handle
        self.pid: int | None = None
        self.unfit = ""
        self.open = True
        """Whether its socket is registered."""
        self.writing = False
        """Whether the socket could not take everything yet."""


class PoolLoop:
    """Serves the processes of one pool, in a thread of its own."""

    def __init__(
        self, policy: PoolPolicy, launcher: Launcher, configuration: Packed, clock: Clock, name: str
    ) -> None:
        self.policy = policy
        self.jobs: dict[Hashable, PoolCall] = {}
        """The calls that have not ended, by id."""
        self.ended = 0
        self.finished = threading.Event()
        """Set once the thread has ended, and all processes with it."""
        self.ident: int | None = None
        self._launcher = launcher
        self._configuration = configuration
        self._clock = clock
        self._name = name
        self._inbox: deque[Callable[[], None] | list[PoolCall]] = deque()
        self._asleep = False
        self._timer: Timer | None = None
        self._processes: dict[int, _Process] = {}
        self._files = ExitStack()

    def put(self, what: Callable[[], None] | list[PoolCall]) -> None:
        """Wake the thread to take calls, or to call a function. Thread-safe."""
        self._inbox.append(what)
        if self._asleep:
            self.wake()

    def wake(self) -> None:
        """Make the thread look around. Thread-safe."""
        self._asleep = False
        with suppress(OSError):  # it is full, so the thread will wake; or it has ended
            self._waker.send(b"x")

    def run(self) -> None:
        """Serve until the policy is closing and all processes have ended."""
        self.ident = threading.get_ident()
        try:
            self._open()
            while not (self.policy.closing and not self.policy.members and not self._inbox):
                self._turn()
        except BaseException:  # noqa: BLE001 - a bug of ours: nobody must wait forever
            log.critical("the thread of a pool failed", pool=self._name, exc_info=True)
            self._give_up()
        finally:
            self._release()
            self.finished.set()
            self.sweep()

    def sweep(self) -> None:
        """End calls that have come too late for the thread. Thread-safe."""
        error = ProcessCancelled("the pool was closed before the call began")
        while self._inbox:
            try:
                late = self._inbox.popleft()
            except IndexError:  # another thread was faster
                return
            for job in late if isinstance(late, list) else ():
                ended = CallEnded(
                    job.call.id, CallOutcome.CANCELLED, error=error, ended=time.time()
                )
                self._report(job, ended)

    def _open(self) -> None:
        """Open what the thread waits for; only now, so that a pool that is not used has none."""
        self._wakeup, self._waker = map(self._files.enter_context, socket.socketpair())
        self._wakeup.setblocking(False)  # noqa: FBT003 - the name of the standard library
        self._waker.setblocking(False)  # noqa: FBT003
        self._selector = self._files.enter_context(selectors.DefaultSelector())
        self._selector.register(self._wakeup, _READ, self._woken)

    def _turn(self) -> None:
        """Wait for something to happen, and deal with it."""
        now = self._clock.now()
        self._step(now)
        timeout = self._timeout(now)
        if timeout != 0:
            self._asleep = True
            if self._inbox:
                timeout = 0
        for key, mask in self._selector.select(timeout):
            key.data(mask)
        self._asleep = False

    def _step(self, now: float) -> None:
        inbox, policy = self._inbox, self.policy
        while inbox:
            what = inbox.popleft()
            if type(what) is list:
                policy.submit(what)
            else:
                what()  # type: ignore[operator]
        while actions := policy.decide(now):
            for action in actions:
                _PERFORM[type(action)](self, action, now)

    def _timeout(self, now: float) -> float | None:
        """Return how long to wait at most; 0 if there is nothing to wait for."""
        if self.policy.closing and not self.policy.members:
            return 0
        when = self.policy.next_time()
        if self._clock is SYSTEM:
            return None if when == math.inf else max(when - now, 0.0)
        if self._timer is not None and self._timer.when != when:
            self._timer.cancel()
            self._timer = None
        if when != math.inf and (self._timer is None or self._timer.callback is None):
            self._timer = self._clock.call_at(when, self.wake)
        return 0 if self._clock.now() >= when else None  # it may have moved meanwhile

    def _woken(self, _mask: int) -> None:
        with suppress(BlockingIOError):
            self._wakeup.recv(4096)

    # What the policy has decided.

    def _launch(self, action: LaunchProcess, now: float) -> None:
        with ExitStack() as opened:
            try:
                ours, theirs = socket.socketpair()
                opened.callback(theirs.close)
                channel = wire.Channel(ours)
                undo = opened.enter_context(ExitStack())
                undo.callback(channel.close)
                page = SharedPage()
                channel.post([wire.encode(wire.CONFIGURE, 0, self._configuration)])
                channel.post([wire.encode(wire.PAGE, file=page.take())])
                handle = self._launcher.start(action.worker, theirs)
            except Exception as error:  # noqa: BLE001 - limits of the system, or a user's launcher
                known = isinstance(error, LaunchFailed)
                how = str(error) if known else kind_and_text(error)
                self.policy.launch_failed(action.worker, how, now)
                return
            undo.pop_all()
        ours.setblocking(False)  # noqa: FBT003 - the name of the standard library
        process = _Process(self.policy.members[action.worker], channel, page, handle)
        self._processes[action.worker] = process
        self._selector.register(ours, _READ, partial(self._ready, process))
        self._selector.register(handle.fileno(), _READ, lambda _mask: self._news(process))
        self._flush(process)

    def _send(self, action: SendCalls, _now: float) -> None:
        encode = wire.encode
        self._post(
            self._processes[action.worker],
            [
                encode(
                    wire.CALL,
                    job.sequence,
                    job.call.payload,
                    number=job.memory,
                    first=job.call.cpu or 0.0,
                )
                for job in action.jobs
            ],
        )

    def _post(self, process: _Process, frames: list[tuple[bytes, int | None]]) -> None:
        process.channel.post(frames)
        self._flush(process)

    def _flush(self, process: _Process) -> None:
        try:
            writing = not process.channel.flush()
        except OSError:
            return  # it has died: its handle will say so
        if writing is not process.writing and process.open:
            process.writing = writing
            key = self._selector.get_key(process.channel.socket)
            self._selector.modify(process.channel.socket, _BOTH if writing else _READ, key.data)

    def _skip(self, action: SkipCalls, _now: float) -> None:
        for sequence in action.sequences:
            self._processes[action.worker].page.skip(sequence)

    def _look(self, action: CheckProgress, _now: float) -> None:
        page = self._processes[action.worker].page
        begun = page.begun
        page.forget(begun)
        self.policy.looked(action.worker, begun)

    def _leave(self, action: RetireProcess, _now: float) -> None:
        self._post(self._processes[action.worker], [wire.encode(wire.LEAVE)])

    def _kill(self, action: KillProcess, _now: float) -> None:
        self._processes[action.worker].handle.kill()

    def _end(self, action: EndCall, now: float) -> None:
        member = action.member
        process = None if member is None else self._processes.get(member.worker)
        ended = time.time()
        self._report(
            action.job,
            CallEnded(
                action.job.call.id,
                action.outcome,
                worker=None if member is None else member.place,
                pid=None if process is None else process.pid,
                error=action.error,
                started=None if member is None else ended - max(now - member.begun, 0.0),
                ended=ended,
                crashes=action.job.crashes,
            ),
        )

    # What processes say.

    def _ready(self, process: _Process, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush(process)
        if mask & _READ and process.open:
            self._receive(process)

    def _receive(self, process: _Process) -> bool:
        """Handle the frames that have arrived; return whether there may be more."""
        try:
            frames = process.channel.receive()
        except BlockingIOError:
            return False
        except (EOFError, OSError):
            self._selector.unregister(process.channel.socket)
            process.open = False
            if process.member.state is not ProcessState.LEAVING:
                process.handle.kill()  # without its socket it is of no use
            return False
        now = self._clock.now()
        for frame in frames:
            kind = frame.kind
            if kind in _COMPLETIONS:
                self._completed(process, frame, now)
            elif kind == wire.SKIPPED:
                self.policy.skipped(process.member.worker, frame.sequence, now)
            elif kind == wire.HELLO:
                process.pid = frame.sequence
                self.policy.ready(process.member.worker, now)
            elif kind == wire.BEAT:
                self._beat(process, frame)
            elif kind == wire.UNFIT:
                process.unfit = _why(frame)
        return True

    def _completed(self, process: _Process, frame: wire.WireFrame, now: float) -> None:
        _, sequence, rss, started, ended, data, buffers, _ = frame
        process.page.forget(sequence)
        member = process.member
        job = self.policy.ended(member.worker, sequence, now, ended - started, rss)
        if job is None:
            return
        made = CallEnded(
            job.call.id,
            CallOutcome.OK,
            worker=member.place,
            pid=process.pid,
            started=started,
            ended=ended,
            crashes=job.crashes,
        )
        try:
            if data is None:
                raise OSError(errno.EMFILE, wire.LOST)  # noqa: TRY301 - reported like all others
            if frame.kind == wire.OK:
                made.result = unpack(data, buffers)
            elif frame.kind == wire.OK_WITH:
                made.result, out, err, made.warnings = unpack(data, buffers)
                made.output = Output(out, err)
            else:
                made.outcome = CallOutcome.FAILED
                made.error, text, out, err, made.warnings = unpack(data, buffers)
                made.output = Output(out, err)
                assert made.error is not None  # noqa: S101 - that is what failing means
                made.error.__cause__ = RemoteTraceback(text)
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            made.outcome = CallOutcome.FAILED
            made.error = NotSendable(
                f"what call {brief(job.call.id)} returned cannot be received here: "
                f"{kind_and_text(error)}"
            )
        self._report(job, made)

    def _report(self, job: PoolCall, ended: CallEnded) -> None:
        self.jobs.pop(job.call.id, None)
        self.ended += 1
        try:
            job.ended(ended)
        except Exception:  # noqa: BLE001 - a user's function must not end the thread
            log.error("callback of an ended call failed", pool=self._name, exc_info=True)

    def _beat(self, process: _Process, frame: wire.WireFrame) -> None:
        """Answer a heartbeat."""
        wanted = True
        for job in process.member.held:
            if job.sequence == frame.sequence and job.call.heartbeat is not None:
                try:
                    values = unpack(frame.data, frame.buffers) if frame.data else ()
                    wanted = bool(job.call.heartbeat(*values))
                except Exception:  # noqa: BLE001 - as above
                    log.error("the heartbeat of a call failed", pool=self._name, exc_info=True)
        self._post(process, [wire.encode(wire.BEATEN, number=int(wanted))])

    def _news(self, process: _Process) -> None:
        """Check whether a process has ended."""
        file = process.handle.fileno()
        if process.handle.alive():
            return
        while process.open and self._receive(process):
            pass  # what it has sent before it ended counts
        self._selector.unregister(file)
        if process.open:
            self._selector.unregister(process.channel.socket)
            process.open = False
        process.channel.close()
        code = process.handle.wait(0)
        pid = process.pid or process.handle.pid
        how = process.unfit or process.handle.reason or f"process {pid} {how_it_ended(code)}"
        if process.pid is None and not (process.unfit or process.handle.reason):
            how += " before it was ready"
        worker = process.member.worker
        self.policy.exited(worker, process.page.begun, how, self._clock.now(), code)
        self._gone(worker)

    def _gone(self, worker: int) -> None:
        """Report what the end of a process means, while it can still be named; then forget it."""
        for action in self.policy.decide(self._clock.now()):
            _PERFORM[type(action)](self, action, self._clock.now())
        del self._processes[worker]

    # The end.

    def _give_up(self) -> None:
        """Kill everything and end all calls, after a bug of ours."""
        for process in self._processes.values():
            process.handle.kill()
        error = LaunchFailed("the thread of the pool failed; see the log")
        for job in list(self.jobs.values()):
            if not job.over:
                job.over = True
                ended = CallEnded(job.call.id, CallOutcome.CRASHED, error=error, ended=time.time())
                self._report(job, ended)

    def close(self) -> None:
        """End the calls that have come, instead of running."""
        self.policy.closing = True
        self.finished.set()
        self.sweep()

    def forget(self) -> None:
        """Close the files of a parent process, in its forked child."""
        for process in self._processes.values():
            process.channel.close()
        self._release()
        self.finished.set()

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._files.close()


_COMPLETIONS = frozenset({wire.OK, wire.OK_WITH, wire.FAILED})

_PERFORM: dict[type[Action], Callable[[PoolLoop, Any, float], None]] = {
    LaunchProcess: PoolLoop._launch,  # noqa: SLF001 - its own
    SendCalls: PoolLoop._send,  # noqa: SLF001
    SkipCalls: PoolLoop._skip,  # noqa: SLF001
    CheckProgress: PoolLoop._look,  # noqa: SLF001
    RetireProcess: PoolLoop._leave,  # noqa: SLF001
    KillProcess: PoolLoop._kill,  # noqa: SLF001
    EndCall: PoolLoop._end,  # noqa: SLF001
}


def _why(frame: wire.WireFrame) -> str:
    """Return why a process is not fit for work."""
    try:
        error, text, *_ = unpack(frame.data, frame.buffers)
    except Exception as failure:  # noqa: BLE001 - user code may raise anything
        return f"its setup failed, and the error cannot be unpickled here: {text_of(failure)}"
    if isinstance(error, LaunchFailed):
        return str(error)
    return f"setup failed with {kind_and_text(error)}\n{text.rstrip()}"
