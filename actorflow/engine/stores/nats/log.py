"""The log: a stream of records, which all engines of a store read in the same order."""

from __future__ import annotations

import asyncio
import random
import uuid
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import nats.errors
import nats.js.errors
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    StorageType,
    StreamConfig,
)

from actorflow.engine.errors import StoreBroken, StoreRefused
from actorflow.engine.stores.nats.connection import FAILURES, Connection, end_tasks, explain
from actorflow.runtime.errors import ActorflowError
from actorflow.runtime.log import log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.msg import Msg
    from nats.js import JetStreamContext
    from nats.js.api import StreamInfo

    from actorflow.engine.stores.nats.address import NatsAddress
    from actorflow.runtime.telemetry.outages import Outage

__all__ = ["Gap", "StreamLog"]

VERSION = "1"
"""The version of the format of records in the log."""

_IDLE = 5.0  # seconds between two heartbeats; after two it is asked whether it is still there
_CONTROL, _STALLED = "100", "Nats-Consumer-Stalled"  # a status and a header of NATS
_ANSWER = 2.0  # seconds for an answer that comes at once, unless a leader has died
_ELECTION = 30.0  # seconds for a stream that is opened to have a leader: it takes up to 9
_FIRST, _LONGEST = 0.05, 2.0  # seconds between two tries
_HEADERS = 1_024  # bytes that are left for them in a message
_PARTS = 1_000  # messages of an atomic batch, at most


class Gap(Exception):
    """Records are missing between the last one that was read and the next."""


class StreamLog:
    """Appends records, and hands on all that are appended, in order. Thread-safe.

    Args:
        address: where the stream is.
        take: called with the number, the time and the bytes of each record, on the loop's thread.
        recover: called when the next record is not in the log any more; returns the number of the
            last record that is known then.
        outage: of the store.

    """

    def __init__(
        self,
        address: NatsAddress,
        take: Callable[[int, float, bytes], None],
        recover: Callable[[], Awaitable[int]],
        outage: Outage,
    ) -> None:
        self._address = address
        self._take = take
        self._recover = recover
        self._outage = outage
        self._again = asyncio.Event()
        self._readers = 0  # grows when another one begins, and when it ends
        self._heard = 0.0
        self._unreadable: Exception | None = None
        self._closed = False
        self._following: asyncio.Task[None] | None = None
        self._parts: list[bytes] = []
        self._seen = 0
        self.failure: ActorflowError | None = None
        """Why the log cannot be used any more, or not now."""
        self.connection = Connection(address, self._read_again)
        try:
            self.partitions = self.connection.call(self._ensure_stream(), _ELECTION)
        except BaseException:
            self.connection.close()
            raise

    @property
    def js(self) -> JetStreamContext:
        """JetStream, for coroutines that run on the loop."""
        return self.connection.js

    def _read_again(self) -> None:
        """Read with another consumer: the servers may have lost ours. On the loop's thread."""
        self._again.set()

    def hurry(self) -> None:
        """Do not wait for a consumer that is silent although there is something to read."""
        self.connection.start(self._hurry())

    async def _hurry(self) -> None:
        self._read_again()

    async def _ensure_stream(self) -> int:
        """Create the stream, or see that it is ours; return how many partitions the store has."""
        address = self._address
        wanted = {"actorflow": VERSION, "partitions": str(address.partitions)}
        config = StreamConfig(
            name=address.stream,
            subjects=[address.subject],
            storage=StorageType.FILE,
            num_replicas=address.replicas,
            discard=DiscardPolicy.NEW,
            allow_atomic=True,
            metadata=wanted,
        )
        try:
            found = await self._info()
        except nats.js.errors.NotFoundError:
            try:
                found = await self.js.add_stream(config)
            except nats.js.errors.BadRequestError:  # another engine was faster
                found = await self.js.stream_info(address.stream)
        metadata = found.config.metadata or {}
        version = metadata.get("actorflow")
        if version != VERSION:
            what = f"of version {version}" if version else "not one of actorflow's"
            msg = (
                f"{address.shown}: the stream {address.stream!r} is {what}; this release reads "
                f"version {VERSION}. Nothing of it was changed"
            )
            raise StoreBroken(msg)
        if not found.config.allow_atomic:
            msg = f"{address.shown}: the stream {address.stream!r} allows no atomic batches"
            raise StoreBroken(msg)
        return int(metadata["partitions"])

    async def _info(self) -> StreamInfo:
        """Return what the server says of the stream, once it has a leader."""
        js = self.connection.client.jetstream(timeout=_ANSWER)
        end = monotonic() + _ELECTION - _ANSWER
        while True:
            try:
                return await js.stream_info(self._address.stream)
            except nats.errors.TimeoutError:
                if monotonic() > end:
                    raise

    # Appending.

    async def append(self, data: bytes) -> int:
        """Append a record; return its number once it is stored.

        Raises:
            Error: of NATS. It is not known then whether it was appended.

        """
        size = self.connection.largest - _HEADERS
        if len(data) <= size:
            return (await self.js.publish(self._address.subject, data, timeout=_ANSWER)).seq
        parts = [data[at : at + size] for at in range(0, len(data), size)]
        if len(parts) > _PARTS:
            msg = f"a commit of {len(data):,} bytes is larger than NATS takes: {_PARTS * size:,}"
            raise StoreRefused(msg)
        return await self._append_batch(parts)

    async def _append_batch(self, parts: list[bytes]) -> int:
        """Append a record in several messages, all of them or none."""
        client, subject = self.connection.client, self._address.subject
        batch = uuid.uuid4().hex
        *firsts, last = parts
        for number, part in enumerate(firsts, 1):
            headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            if number == 1:  # the answer says whether the stream takes batches
                await client.request(subject, part, headers=headers, timeout=5.0)
            else:
                await client.publish(subject, part, headers=headers)
        headers = {
            "Nats-Batch-Id": batch,
            "Nats-Batch-Sequence": str(len(parts)),
            "Nats-Batch-Commit": "1",
        }
        return (await self.js.publish(subject, last, headers=headers, timeout=_ANSWER)).seq

    # Following.

    def follow(self, after: int) -> None:
        """Begin to hand on the records after `after`."""
        self._seen = after
        self.connection.call(self._begin())

    async def _begin(self) -> None:
        self._following = asyncio.ensure_future(self._follow())

    async def _end(self) -> None:
        if self._following is not None:
            await end_tasks({self._following})

    async def last(self) -> int:
        """Return the number of the last record."""
        info = await self.js.stream_info(self._address.stream)
        return info.state.last_seq

    async def _follow(self) -> None:
        tries = 0
        while not self._closed:
            try:
                await self._read()
            except Gap:
                await self._close_gap()
                continue
            except (*FAILURES, ActorflowError) as error:
                found = (
                    error if isinstance(error, ActorflowError) else explain(error, self._address)
                )
                if isinstance(found, StoreBroken):
                    self.failure = found
                self._outage.failed(found, "the log of the store cannot be read")
            else:
                tries = 0
                continue
            pause = min(_FIRST * 2.0 ** min(tries, 16), _LONGEST) * random.uniform(0.5, 1.0)  # noqa: S311
            await asyncio.sleep(pause)
            tries += 1

    async def _close_gap(self) -> None:
        try:
            self._seen = await self._recover()
        except (*FAILURES, ActorflowError) as error:
            log.warning("the log was shortened, and no snapshot can be read", error=str(error))
            await asyncio.sleep(_LONGEST)

    async def _read(self) -> None:
        """Read until the connection is lost, or the consumer is.

        The server pushes records as they are stored, and a heartbeat when there are none. It asks
        now and then how far we are, and sends no more than a few megabytes ahead of the answer.
        """
        self._parts = []
        self._again.clear()
        self._check(await self.js.stream_info(self._address.stream))
        client = self.connection.client
        inbox = client.new_inbox()
        self._readers += 1
        hear = partial(self._hear, self._readers)
        reader = await client.subscribe(inbox, cb=hear, pending_msgs_limit=0, pending_bytes_limit=0)
        try:
            self._heard = monotonic()
            consumer = await self.js.add_consumer(
                self._address.stream,
                ConsumerConfig(
                    deliver_subject=inbox,
                    flow_control=True,
                    idle_heartbeat=_IDLE,
                    deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                    opt_start_seq=self._seen + 1,
                    ack_policy=AckPolicy.NONE,
                    inactive_threshold=60.0,
                    mem_storage=True,
                ),
            )
            self.failure = None
            self._outage.ended()
            while not self._again.is_set():
                try:
                    await asyncio.wait_for(self._again.wait(), _IDLE)
                except TimeoutError:
                    if monotonic() - self._heard > 2 * _IDLE:  # raises if it is gone
                        info = self.js.consumer_info(self._address.stream, consumer.name)
                        await asyncio.wait_for(info, _ANSWER)
        finally:
            self._readers += 1
            await _quietly(reader.unsubscribe)
        error, self._unreadable = self._unreadable, None
        if error is not None:
            raise error

    async def _hear(self, reader: int, message: Msg) -> None:
        """Take a record, or answer a message of the server about the delivery itself."""
        if reader != self._readers:
            return  # of an earlier consumer
        self._heard = monotonic()
        headers = message.headers
        if headers is not None and headers.get("Status") == _CONTROL:
            reply = message.reply or headers.get(_STALLED)
            if reply:
                await self.connection.client.publish(reply)
            return
        try:
            self._take_message(message)
        except Exception as error:  # noqa: BLE001 - raised by `_read`
            self._unreadable = error
            self._readers += 1
            self._again.set()

    def _check(self, info: StreamInfo) -> None:
        """Refuse a log that has lost its end."""
        if info.state.last_seq < self._seen:
            msg = (
                f"{self._address.shown}: the stream {self._address.stream!r} ends with record "
                f"{info.state.last_seq}, and {self._seen} have been read: it was deleted or has "
                "lost its end. Restore it, or close all engines to go on with the remaining records"
            )
            raise StoreBroken(msg)

    def _take_message(self, message: Msg) -> None:
        metadata = message.metadata
        number = metadata.sequence.stream
        expected = self._seen + len(self._parts) + 1
        if number > expected:
            raise Gap  # a snapshot has the rest
        if number < expected:
            return  # delivered twice
        headers: dict[str, Any] = message.headers or {}
        self._parts.append(message.data)
        if "Nats-Batch-Id" in headers and "Nats-Batch-Commit" not in headers:
            return
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        self._take(number, metadata.timestamp.timestamp(), data)
        self._seen = number

    def close(self) -> None:
        """End following, and close the connection."""
        self._closed = True
        try:
            self.connection.call(self._end())
        except StoreRefused as error:  # closing the connection ends it, too
            log.warning("the log of the store is not read yet", error=str(error))
        finally:
            self.connection.close()


async def _quietly(call: Callable[[], Any]) -> None:
    try:
        await call()
    except FAILURES:
        return
