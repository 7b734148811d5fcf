"""A thread that listens for notifications of Postgres (LISTEN/NOTIFY).

A pooler that assigns connections per transaction cannot pass notifications on. With `listen=off` in
the URL, the thread polls instead, every `poll=0.2` seconds.

Such a pooler accepts LISTEN, and no notice ever arrives. So each new connection is tested with a
notice that this engine sends to itself over another connection.
"""

from __future__ import annotations

import random
import selectors
import socket
import threading
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from actorflow.engine.errors import StoreRefused
from actorflow.engine.stores.postgres.connections import explain
from actorflow.engine.stores.postgres.notices import decode_notice
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.stores.postgres.connections import PostgresAddress
    from actorflow.engine.stores.postgres.notices import Notice
    from actorflow.runtime.telemetry.outages import Outage

__all__ = ["UNHEARD", "NotificationListener", "back_off"]

UNHEARD = 5.0
"""Seconds for a notice to arrive that this engine has sent to itself."""
_FIRST, _LONGEST = 0.1, 5.0  # seconds between two tries to connect


def back_off(tries: int) -> float:
    """Return the seconds to wait after so many failures: longer each time, never the same."""
    longest: float = min(_FIRST * 2.0 ** min(tries, 16), _LONGEST)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - jitter


class NotificationListener:
    """Calls `heard(notice)` for notices of others.

    Args:
        address: where the store is.
        heard: called with each notice.
        connected: called when notices may have been missed: there is a new connection.
        poll: called every few seconds.
        probe: sends a notice over another connection; returns whether that was possible.
        outage: of the store.
        unheard: seconds for that notice to arrive.

    """

    def __init__(
        self,
        address: PostgresAddress,
        heard: Callable[[Notice], None],
        connected: Callable[[], None],
        poll: Callable[[], None],
        *,
        probe: Callable[[], bool],
        outage: Outage,
        unheard: float | None = None,
    ) -> None:
        self._address = address
        self._heard = heard
        self._connected = connected
        self._poll = poll
        self._probe = probe
        self._outage = outage
        self._unheard = UNHEARD if unheard is None else unheard
        self.deaf = False
        """Whether notices do not arrive, although the server accepts `LISTEN`."""
        self._stop = threading.Event()
        self._wakes, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="actorflow-listener", daemon=True)

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """End, and wait for that."""
        self._stop.set()
        self._wake.send(b"x")
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()
        self._wake.close()
        self._wakes.close()

    def _run(self) -> None:
        tries = 0
        while not self._stop.is_set():
            try:
                if not self._address.listens:
                    self._stop.wait(self._address.poll)
                    self._poll()
                    continue
                with self._address.connect(autocommit=True) as connection:
                    self._listen(connection)
            except (StoreRefused, psycopg.Error) as error:
                refused = isinstance(error, StoreRefused)
                explained = error if refused else explain(error, self._address)
                self._outage.failed(explained, "notices cannot be received")
                self._stop.wait(back_off(tries))
                tries += 1
            else:
                tries = 0

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        channel = sql.Identifier(self._address.schema)
        connection.execute(sql.SQL("LISTEN {}").format(channel))
        self._outage.ended()
        self._connected()
        polled = monotonic()
        limit: float | None = self._send_probe()
        # Not `notifies(timeout=...)`, which wakes up ten times a second.
        with selectors.DefaultSelector() as selector:
            selector.register(connection.fileno(), selectors.EVENT_READ)
            selector.register(self._wakes, selectors.EVENT_READ)
            while not self._stop.is_set():
                for notify in connection.notifies(timeout=0.0):
                    limit = None
                    self._note_deaf(deaf=False)
                    self._heard(decode_notice(notify.payload))
                now = monotonic()
                if limit is not None and now >= limit:
                    limit = None
                    self._note_deaf(deaf=True)
                left = polled + self._address.poll - now
                if left > 0.0:
                    selector.select(left if limit is None else min(left, limit - now))
                    continue
                polled = now
                if limit == inf:  # it could not be sent
                    limit = self._send_probe()
                self._poll()

    def _send_probe(self) -> float:
        """Send ourselves a notice; return the moment at which it must have arrived."""
        return monotonic() + self._unheard if self._probe() else inf

    def _note_deaf(self, *, deaf: bool) -> None:
        """Note whether notices arrive; log it if that has changed."""
        if deaf == self.deaf:
            return
        self.deaf = deaf
        if deaf:
            log.warning(
                "notices do not arrive: is there a pooler in transaction mode? Looking at "
                "everything from time to time instead; connect to the server itself, or add "
                "listen=off&prepare=off to the URL",
                store=self._address.shown,
                every_s=self._address.poll,
            )
        else:
            log.warning("notices arrive again", store=self._address.shown)
