"""The thread of a crew: it does what the roster decides, and reports what happens.

One thread serves the sockets of all processes of a crew. It unpickles results and calls `ended`.
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
from typing import TYPE_CHECKING, Any

from actorflow.runtime.clock import SYSTEM
from actorflow.runtime.errors import LaunchFailed, NotSendable, ProcessCancelled
from actorflow.runtime.lanes.process import wire
from actorflow.runtime.lanes.process.call import CallOutcome, Ended, Output, RemoteTraceback
from actorflow.runtime.lanes.process.launcher import how_it_ended
from actorflow.runtime.lanes.process.memory import Page
from actorflow.runtime.lanes.process.packing import unpack
from actorflow.runtime.lanes.process.roster.actions import (
    End,
    Kill,
    Launch,
    Leave,
    Look,
    Send,
    Skip,
)
from actorflow.runtime.lanes.process.roster.members import MemberState
from actorflow.runtime.log import log
from behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from actorflow.runtime.clock import Clock, Timer
    from actorflow.runtime.lanes.process.launcher import Handle, Launcher
    from actorflow.runtime.lanes.process.packing import Packed
    from actorflow.runtime.lanes.process.roster.actions import Action
    from actorflow.runtime.lanes.process.roster.members import Job, Member
    from actorflow.runtime.lanes.process.roster.roster import Roster

__all__ = ["Loop"]

_READ = selectors.EVENT_READ
_BOTH = selectors.EVENT_READ | selectors.EVENT_WRITE


class _Process:
    """One process: its socket, its page and its handle."""

    __slots__ = ("channel", "handle", "member", "open", "page", "pid", "unfit", "writing")

    def __init__(self, member: Member, channel: wire.Channel, page: Page, handle: Handle) -> None:
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


class Loop:
    """Serves the processes of one crew, in a thread of its own."""

    def __init__(
        self, roster: Roster, launcher: Launcher, configuration: Packed, clock: Clock, name: str
    ) -> None:
        self.roster = roster
        self.jobs: dict[Hashable, Job] = {}
        """The calls that have not ended, by id."""
        self.ended = 0
        self.finished = threading.Event()
        """Set once the thread has ended, and all processes with it."""
        self.ident: int | None = None
        self._launcher = launcher
        self._configuration = configuration
        self._clock = clock
        self._name = name
        self._inbox: deque[Callable[[], None] | list[Job]] = deque()
        self._asleep = False
        self._timer: Timer | None = None
        self._processes: dict[int, _Process] = {}
        self._files = ExitStack()

    def put(self, what: Callable[[], None] | list[Job]) -> None:
        """Wake the thread to take calls, or to call a function. Thread-safe."""
        self._inbox.append(what)
        if self._asleep:
            self.wake()

    def wake(self) -> None:
        """Make the thread look around. Thread-safe."""
        self._asleep = False
        with suppress(OSError):  # it is full, so the thread will wake; or it has ended
            self._ring.send(b"x")

    def run(self) -> None:
        """Serve until the roster is closing and all processes have ended."""
        self.ident = threading.get_ident()
        try:
            self._open()
            while not (self.roster.closing and not self.roster.members and not self._inbox):
                self._turn()
        except BaseException:  # noqa: BLE001 - a bug of ours: nobody must wait for ever
            log.critical("the thread of a crew failed", crew=self._name, exc_info=True)
            self._give_up()
        finally:
            self._release()
            self.finished.set()
            self.sweep()

    def sweep(self) -> None:
        """End calls that have come too late for the thread. Thread-safe."""
        error = ProcessCancelled("the crew was closed before the call began")
        while self._inbox:
            try:
                late = self._inbox.popleft()
            except IndexError:  # another thread was faster
                return
            for job in late if isinstance(late, list) else ():
                ended = Ended(job.call.id, CallOutcome.CANCELLED, error=error, ended=time.time())
                self._report(job, ended)

    def _open(self) -> None:
        """Open what the thread waits for; only now, so that a crew that is not used has none."""
        self._bell, self._ring = map(self._files.enter_context, socket.socketpair())
        self._bell.setblocking(False)  # noqa: FBT003 - the name of the standard library
        self._ring.setblocking(False)  # noqa: FBT003
        self._selector = self._files.enter_context(selectors.DefaultSelector())
        self._selector.register(self._bell, _READ, self._woken)

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
        inbox, roster = self._inbox, self.roster
        while inbox:
            what = inbox.popleft()
            if type(what) is list:
                roster.submit(what)
            else:
                what()  # type: ignore[operator]
        while actions := roster.decide(now):
            for action in actions:
                _PERFORM[type(action)](self, action, now)

    def _timeout(self, now: float) -> float | None:
        """Return how long to wait at most; 0 if there is nothing to wait for."""
        if self.roster.closing and not self.roster.members:
            return 0
        when = self.roster.next_time()
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
            self._bell.recv(4096)

    # What the roster has decided.

    def _launch(self, action: Launch, now: float) -> None:
        with ExitStack() as opened:
            try:
                ours, theirs = socket.socketpair()
                opened.callback(theirs.close)
                channel = wire.Channel(ours)
                undo = opened.enter_context(ExitStack())
                undo.callback(channel.close)
                page = Page()
                channel.post([wire.encode(wire.CONFIGURE, 0, self._configuration)])
                channel.post([wire.encode(wire.PAGE, file=page.take())])
                handle = self._launcher.start(action.worker, theirs)
            except Exception as error:  # noqa: BLE001 - limits of the system, or a user's launcher
                known = isinstance(error, LaunchFailed)
                how = str(error) if known else f"{type(error).__name__}: {error}"
                self.roster.launch_failed(action.worker, how, now)
                return
            undo.pop_all()
        ours.setblocking(False)  # noqa: FBT003 - the name of the standard library
        process = _Process(self.roster.members[action.worker], channel, page, handle)
        self._processes[action.worker] = process
        self._selector.register(ours, _READ, lambda mask: self._ready(process, mask))
        self._selector.register(handle.fileno(), _READ, lambda _mask: self._news(process))
        self._flush(process)

    def _send(self, action: Send, _now: float) -> None:
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

    def _skip(self, action: Skip, _now: float) -> None:
        for sequence in action.sequences:
            self._processes[action.worker].page.skip(sequence)

    def _look(self, action: Look, _now: float) -> None:
        page = self._processes[action.worker].page
        begun = page.begun
        page.forget(begun)
        self.roster.looked(action.worker, begun)

    def _leave(self, action: Leave, _now: float) -> None:
        self._post(self._processes[action.worker], [wire.encode(wire.LEAVE)])

    def _kill(self, action: Kill, _now: float) -> None:
        self._processes[action.worker].handle.kill()

    def _end(self, action: End, now: float) -> None:
        member = action.member
        process = None if member is None else self._processes.get(member.worker)
        ended = time.time()
        self._report(
            action.job,
            Ended(
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
            if process.member.state is not MemberState.LEAVING:
                process.handle.kill()  # without its socket it is of no use
            return False
        now = self._clock.now()
        for frame in frames:
            kind = frame.kind
            if kind in _COMPLETIONS:
                self._completed(process, frame, now)
            elif kind == wire.SKIPPED:
                self.roster.skipped(process.member.worker, frame.sequence, now)
            elif kind == wire.HELLO:
                process.pid = frame.sequence
                self.roster.ready(process.member.worker, now)
            elif kind == wire.BEAT:
                self._beat(process, frame.sequence)
            elif kind == wire.UNFIT:
                process.unfit = _why(frame)
        return True

    def _completed(self, process: _Process, frame: wire.Frame, now: float) -> None:
        _, sequence, rss, started, ended, data, buffers, _ = frame
        process.page.forget(sequence)
        member = process.member
        job = self.roster.ended(member.worker, sequence, now, ended - started, rss)
        if job is None:
            return
        made = Ended(
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
        except Exception as error:  # noqa: BLE001 - whatever a class of the user's raises
            made.outcome = CallOutcome.FAILED
            made.error = NotSendable(
                f"what call {brief(job.call.id)} returned cannot be received here: "
                f"{type(error).__name__}: {error}"
            )
        self._report(job, made)

    def _report(self, job: Job, ended: Ended) -> None:
        self.jobs.pop(job.call.id, None)
        self.ended += 1
        try:
            job.ended(ended)
        except Exception:  # noqa: BLE001 - a user's function must not end the thread
            log.error("a function told of the end of a call failed", crew=self._name, exc_info=True)

    def _beat(self, process: _Process, sequence: int) -> None:
        """Answer a heartbeat."""
        wanted = True
        for job in process.member.held:
            if job.sequence == sequence and job.call.heartbeat is not None:
                try:
                    wanted = bool(job.call.heartbeat())
                except Exception:  # noqa: BLE001 - as above
                    log.error("the heartbeat of a call failed", crew=self._name, exc_info=True)
        self._post(process, [wire.encode(wire.BEATEN, number=int(wanted))])

    def _news(self, process: _Process) -> None:
        """See whether a process has ended."""
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
        self.roster.exited(worker, process.page.begun, how, self._clock.now(), code)
        self._gone(worker)

    def _gone(self, worker: int) -> None:
        """Report what the end of a process means, while it can still be named; then forget it."""
        for action in self.roster.decide(self._clock.now()):
            _PERFORM[type(action)](self, action, self._clock.now())
        del self._processes[worker]

    # The end.

    def _give_up(self) -> None:
        """Kill everything and end all calls, after a bug of ours."""
        for process in self._processes.values():
            process.handle.kill()
        error = LaunchFailed("the thread of the crew failed; see the log")
        for job in list(self.jobs.values()):
            if not job.over:
                job.over = True
                ended = Ended(job.call.id, CallOutcome.CRASHED, error=error, ended=time.time())
                self._report(job, ended)

    def close(self) -> None:
        """End the calls that have come, instead of running."""
        self.roster.closing = True
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

_PERFORM: dict[type[Action], Callable[[Loop, Any, float], None]] = {
    Launch: Loop._launch,  # noqa: SLF001 - its own
    Send: Loop._send,  # noqa: SLF001
    Skip: Loop._skip,  # noqa: SLF001
    Look: Loop._look,  # noqa: SLF001
    Leave: Loop._leave,  # noqa: SLF001
    Kill: Loop._kill,  # noqa: SLF001
    End: Loop._end,  # noqa: SLF001
}


def _why(frame: wire.Frame) -> str:
    """Return why a process is not fit for work."""
    try:
        error, text, *_ = unpack(frame.data, frame.buffers)
    except Exception as failure:  # noqa: BLE001 - whatever a class of the user's raises
        return f"its setup failed, and the error cannot be unpickled here: {failure}"
    if isinstance(error, LaunchFailed):
        return str(error)
    return f"setup failed with {type(error).__name__}: {error}\n{text.rstrip()}"
