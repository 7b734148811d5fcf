"""Transactions that are sent as a whole, with a single wait for all answers.

psycopg's own pipeline exchanges data with the server after each statement. Each exchange releases
the interpreter lock. While other threads compute, it takes milliseconds to get the lock back.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
from psycopg import errors
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format, TransactionStatus
from psycopg.waiting import Ready, Wait

from actorflow.engine.stores.postgres.arrays import Column
from actorflow.engine.stores.postgres.schema import qualified
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from psycopg.pq.abc import PGconn, PGresult

__all__ = ["Pipe", "exchange", "ids_of"]

_PLACE = re.compile(rb"%s")
_long = Struct("!q").pack
_NO_STATEMENT = b"26000"
_FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE)


class _Statement:
    """A statement as the server knows it."""

    __slots__ = ("name", "prepared", "text")

    def __init__(self, text: bytes, name: bytes) -> None:
        self.text = text
        self.name = name
        self.prepared = False


class Pipe:
    """Transactions on one connection, which is used for nothing else meanwhile.

    Args:
        connection: to a server; what it has begun, a transaction of ours ends.
        schema: that of the tables.
        prepare: whether the server may keep statements for the next time.

    """

    def __init__(self, connection: psycopg.Connection[Any], schema: str, *, prepare: bool) -> None:
        self._connection = connection
        self._schema = schema
        self._prepare = prepare
        self._statements: dict[str, _Statement] = {}
        if prepare:
            # If psycopg has prepared statements, its rollback drops all of them, also ours.
            connection.prepare_threshold = None

    def transact(
        self,
        script: Iterable[tuple[str, Sequence[Any]]],
        after: Iterable[tuple[str, Sequence[Any]]] = (),
    ) -> dict[str, PGresult]:
        """Run statements as one transaction and commit it; return the result of each text.

        Statements of `after` follow in a transaction of their own, in the same round trip. Whether
        they fail changes nothing about the first transaction.

        Raises:
            psycopg.Error: one of them failed, and the transaction is still open; or the connection
                is lost, and what happened to the transaction is not known.

        """
        pgconn = self._connection.pgconn
        sent: list[tuple[str | None, _Statement | None]] = []
        then: list[tuple[str | None, _Statement | None]] = []
        pgconn.enter_pipeline_mode()
        try:
            if pgconn.transaction_status == TransactionStatus.IDLE:
                self._send(pgconn, "BEGIN", (), sent)
            for text, values in script:
                self._send(pgconn, text, values, sent)
            self._send(pgconn, "COMMIT", (), sent)
            pgconn.pipeline_sync()
            for text, values in after:
                self._send(pgconn, text, values, then)
            if then:
                pgconn.pipeline_sync()
            results = self._connection.wait(exchange(pgconn))
            if then:
                self._finish(pgconn, then)
            if pgconn.status == ConnStatus.OK:
                pgconn.exit_pipeline_mode()
        except BaseException:
            self._connection.close()  # it is not known how much is still to be read
            raise
        return self._sort(sent, results)

    def _finish(self, pgconn: PGconn, sent: list[tuple[str | None, _Statement | None]]) -> None:
        """Read the results that follow a transaction, whose own result is known."""
        try:
            self._sort(sent, self._connection.wait(exchange(pgconn)))
        except psycopg.OperationalError:  # the next transaction finds the connection closed
            self._connection.close()
        except psycopg.Error as error:
            if not isinstance(error, errors.InFailedSqlTransaction):  # that is the first one's
                log.warning("notices were not sent", error=str(error).strip())

    def _send(
        self,
        pgconn: PGconn,
        text: str,
        values: Sequence[Any],
        sent: list[tuple[str | None, _Statement | None]],
    ) -> None:
        found = self._statements.get(text)
        if found is None:
            found = self._statements[text] = self._made(text)
        # A cell is a pair of its type and its binary form.
        dumped = [each[1] if type(each) is tuple else _dumped(each) for each in values]
        formats = [Format.BINARY] * len(dumped)
        if not self._prepare:
            types = [_type_of(each) for each in values]
            pgconn.send_query_params(found.text, dumped, types, formats, Format.BINARY)
        else:
            if not found.prepared:
                types = [_type_of(each) for each in values]
                pgconn.send_prepare(found.name, found.text, types)
                sent.append((None, found))
            pgconn.send_query_prepared(found.name, dumped, formats, Format.BINARY)
        sent.append((text, None))

    def _made(self, text: str) -> _Statement:
        places = iter(range(1, 1_000))
        numbered = _PLACE.sub(lambda _: b"$%d" % next(places), qualified(text, self._schema))
        return _Statement(numbered, b"actorflow_%d" % len(self._statements))

    def _forget_missing(self, result: PGresult) -> None:
        """Prepare the statements again if the server has dropped one, as some poolers do."""
        if result.error_field(DiagnosticField.SQLSTATE) == _NO_STATEMENT:
            for each in self._statements.values():
                each.prepared = False
                each.name += b"_"

    def _sort(
        self, sent: list[tuple[str | None, _Statement | None]], results: list[PGresult]
    ) -> dict[str, PGresult]:
        """Return the results that are not skipped; raise the first error."""
        found: dict[str, PGresult] = {}
        for (text, statement), result in zip(sent, results, strict=True):
            if result.status in _FAILED:
                self._forget_missing(result)
                raise errors.error_from_result(result, self._connection.info.encoding)
            if statement is not None:
                statement.prepared = True
            elif text is not None:
                found[text] = result
        return found


def exchange(pgconn: PGconn) -> Generator[Wait, Ready | int, list[PGresult]]:
    """Send the queue and return the results up to the next synchronisation."""
    while pgconn.flush():
        if (yield Wait.RW) & Ready.R:
            pgconn.consume_input()  # a server that cannot write does not read either
    results: list[PGresult] = []
    ended = False
    while True:
        while pgconn.is_busy():
            yield Wait.R
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:  # the end of the results of one statement
            if ended or pgconn.status != ConnStatus.OK:
                raise psycopg.OperationalError(pgconn.get_error_message())
            ended = True
        elif result.status == ExecStatus.PIPELINE_SYNC:
            return results
        else:
            ended = False
            results.append(result)


def _dumped(value: Any) -> bytes:
    """Return the binary form of a parameter other than a cell."""
    if isinstance(value, Column):
        return value.dump()
    if isinstance(value, UUID):
        return value.bytes
    return value.encode() if isinstance(value, str) else _long(value)


def _type_of(value: Any) -> int:
    """Return the type of a parameter, by Postgres's number."""
    if type(value) is tuple:
        return int(value[0])
    if isinstance(value, Column):
        return value.array
    return 2950 if isinstance(value, UUID) else 25 if isinstance(value, str) else 20


def ids_of(result: PGresult) -> list[int]:
    """Return the first column of a result, which holds whole numbers."""
    cells = (result.get_value(row, 0) for row in range(result.ntuples))
    return [int.from_bytes(cell or b"", "big") for cell in cells]
