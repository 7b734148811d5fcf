"""The register of the cluster: one row, which every check-in locks for a moment.

The epochs have rows of their own. A commit holds those of its partitions with a share lock, so that
a partition cannot be taken in the middle of one, and renewing a lease waits for nobody.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg

from actorflow.cluster.postgres.connections import explain
from actorflow.cluster.postgres.schema import qualified
from actorflow.cluster.postgres.writing.arrays import Longs, column_list
from actorflow.cluster.ring import Holding, Roll, Seat, check_in

if TYPE_CHECKING:
    from actorflow.cluster.postgres.connections import Address
    from actorflow.cluster.ring import CheckIn, View

__all__ = ["PostgresRegister", "read_register"]

_LIMITS = """
SELECT set_config('lock_timeout', '2000', true), set_config('statement_timeout', '4000', true),
  set_config('idle_in_transaction_session_timeout', '4000', true)
"""
_READ = "SELECT seats::text, holdings::text FROM {s}.register"
_TIME = "SELECT extract(epoch FROM clock_timestamp())::double precision"
_WRITE = "UPDATE {s}.register SET seats = %s::jsonb, holdings = %s::jsonb"
_EPOCHS = """
UPDATE {s}.epochs AS e SET epoch = v.epoch
FROM unnest(%s, %s) AS v (number, epoch) WHERE e.number = v.number
"""

_seats = msgspec.json.Decoder(list[Seat]).decode
_holdings = msgspec.json.Decoder(list[Holding]).decode


def _roll(row: Any, partitions: int) -> Roll:
    seats = {seat.name: seat for seat in _seats(row[0])}
    return Roll(seats, _holdings(row[1]) or Roll.of(partitions).holdings)


def read_register(connection: psycopg.Connection[Any], schema: str, partitions: int) -> View:
    """Return what the register says, without changing it."""
    row = connection.execute(qualified(_READ, schema)).fetchone()
    now = connection.execute(_TIME).fetchone()
    return _roll(row, partitions).view(0.0 if now is None else now[0])


class PostgresRegister:
    """Checks in, on a connection of its own. Thread-safe."""

    def __init__(self, address: Address, partitions: int) -> None:
        self._address = address
        self._partitions = partitions
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None

    def check_in(self, request: CheckIn) -> View:
        """Pass a request to the register; return what it says then.

        Raises:
            StoreRefused: it cannot be reached, or is busy. Perhaps the request was applied.

        """
        with self._lock:
            connection = self._connection
            if connection is None or connection.closed:
                connection = self._connection = self._address.connect()
            try:
                with connection.transaction():
                    return self._apply(connection, request)
            except psycopg.Error as error:
                raise explain(error, self._address) from error

    def _apply(self, connection: psycopg.Connection[Any], request: CheckIn) -> View:
        schema = self._address.schema
        connection.execute(_LIMITS)
        row = connection.execute(qualified(f"{_READ} FOR UPDATE", schema)).fetchone()
        now = connection.execute(_TIME).fetchone()
        assert now is not None  # noqa: S101 - a time is always told
        roll = _roll(row, self._partitions)
        before = list(roll.holdings)
        view = check_in(roll, request, now[0])
        seats = msgspec.json.encode(list(roll.seats.values())).decode()
        holdings = msgspec.json.encode(roll.holdings).decode()
        connection.execute(qualified(_WRITE, schema), (seats, holdings))
        taken = [
            (number, after.epoch)
            for number, after in enumerate(roll.holdings)
            if after.epoch != before[number].epoch
        ]
        if taken:
            connection.execute(qualified(_EPOCHS, schema), column_list(taken, Longs, Longs))
        return view

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
