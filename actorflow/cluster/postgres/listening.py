"""Listens for notices in a thread of its own, and looks by itself now and then in case one is lost.

Where nothing can be listened to (a pooler that gives out connections by the transaction), looking
is all that is left: the URL says so (`listen=off`), and how often (`poll=0.2`).
"""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from actorflow.cluster.postgres.notices import decode_notice
from actorflow.engine.errors import StoreRefused
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.cluster.postgres.connections import Address
    from actorflow.cluster.postgres.notices import Notice

__all__ = ["Listener", "back_off"]

_STEP = 0.5  # seconds after which the thread sees that it has to stop, if no notice says so
_FIRST, _LONGEST = 0.1, 5.0  # seconds between two tries to connect
_LOG_EVERY = 60.0


def back_off(tries: int) -> float:
    """Return the seconds to wait after so many failures: longer each time, never the same."""
    longest: float = min(_FIRST * 2.0 ** min(tries, 16), _LONGEST)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - jitter


class Listener:
    """Calls `heard(notice)` for what others say, and `poll()` every few seconds."""

    def __init__(
        self, address: Address, heard: Callable[[Notice], None], poll: Callable[[], None]
    ) -> None:
        self._address = address
        self._heard = heard
        self._poll = poll
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="actorflow-listener", daemon=True)

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._thread.ident is None:
            self._thread.start()

    def close(self, notify: Callable[[], None]) -> None:
        """End, and wait for that; `notify` sends a notice, which the thread waits for."""
        self._stop.set()
        if self._thread.ident is None or threading.current_thread() is self._thread:
            return
        with suppress(StoreRefused):  # then it ends a little later
            notify()
        self._thread.join()

    def _run(self) -> None:
        tries = 0
        logged = -_LOG_EVERY
        while not self._stop.is_set():
            try:
                if not self._address.listens:
                    self._stop.wait(self._address.poll)
                    self._poll()
                    continue
                with self._address.connect(autocommit=True) as connection:
                    self._listen(connection, first=tries)
            except (StoreRefused, psycopg.Error) as error:
                if monotonic() - logged >= _LOG_EVERY:
                    logged = monotonic()
                    log.warning("cannot listen to the store; trying again", error=str(error))
                self._stop.wait(back_off(tries))
                tries += 1
            else:
                tries = 0

    def _listen(self, connection: psycopg.Connection[Any], *, first: int) -> None:
        channel = sql.Identifier(self._address.schema)
        connection.execute(sql.SQL("LISTEN {}").format(channel))
        if first:
            log.info("listening to the store again")
        self._poll()  # what was said before is lost
        looked = monotonic()
        while not self._stop.is_set():
            for notify in connection.notifies(timeout=_STEP, stop_after=1):
                self._heard(decode_notice(notify.payload))
            if monotonic() - looked >= self._address.poll:
                self._poll()
                looked = monotonic()
