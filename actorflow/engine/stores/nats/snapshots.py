"""Snapshots of a store, so that nobody has to read the log from its beginning.

A snapshot is an object named after the record that it includes last. One that is written while
another is read does no harm: the newest counts, and the log is only shortened up to the snapshot
before it, so that engines that lag behind still find what they need.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import nats.js.errors
from nats.js.api import ObjectStoreConfig, StorageType

from actorflow.engine.errors import StoreBroken

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.object_store import ObjectStore

    from actorflow.engine.stores.nats.address import NatsAddress

__all__ = ["Snapshots"]

_NAME = re.compile(r"snapshot-(\d{20})")
_KEPT = 2
_TRIES = 5

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


class Snapshots:
    """The snapshots of one store. All methods run on the loop of the connection."""

    def __init__(self, address: NatsAddress, js: JetStreamContext) -> None:
        self._address = address
        self._js = js

    async def newest(self) -> tuple[int, Any]:
        """Return the last snapshot, and which record it ends with; 0 and `None` without one.

        Raises:
            StoreBroken: it cannot be read.

        """
        for _ in range(_TRIES):  # it may be replaced meanwhile
            try:
                objects = await self._js.object_store(self._address.bucket)
            except nats.js.errors.NotFoundError:
                return 0, None
            numbers = await self._numbers(objects)
            if not numbers:
                return 0, None
            try:
                found = await objects.get(_name(numbers[-1]))
            except nats.js.errors.NotFoundError:
                continue
            if found.data is not None:
                return numbers[-1], self._read(found.data)
        msg = f"{self._address.shown}: no snapshot of the store can be read"
        raise StoreBroken(msg)

    def _read(self, data: bytes) -> Any:
        try:
            return _unpack(zlib.decompress(data))
        except (zlib.error, msgspec.MsgspecError) as error:
            msg = f"{self._address.shown}: the last snapshot of the store is damaged: {error}"
            raise StoreBroken(msg) from error

    async def put(self, number: int, data: bytes) -> None:
        """Store a snapshot, remove old ones, and shorten the log."""
        config = ObjectStoreConfig(
            bucket=self._address.bucket,
            storage=StorageType.FILE,
            replicas=self._address.replicas,
        )
        try:
            objects = await self._js.object_store(self._address.bucket)
        except nats.js.errors.NotFoundError:
            objects = await self._js.create_object_store(self._address.bucket, config)
        await objects.put(_name(number), data)
        numbers = await self._numbers(objects)
        for old in numbers[:-_KEPT]:
            await objects.delete(_name(old))
        if len(numbers) >= _KEPT:
            await self._js.purge_stream(self._address.stream, seq=numbers[-_KEPT] + 1)

    async def _numbers(self, objects: ObjectStore) -> list[int]:
        try:
            listed = await objects.list()
        except nats.js.errors.NotFoundError:  # the bucket is empty
            return []
        found = (_NAME.fullmatch(each.name or "") for each in listed if not each.deleted)
        return sorted(int(each[1]) for each in found if each is not None)


def pack(content: Any) -> bytes:
    """Return a snapshot as bytes."""
    return zlib.compress(_pack(content), 1)


def _name(number: int) -> str:
    return f"snapshot-{number:020}"
