"""One connection to NATS, on an event loop in a thread of its own, and what its errors mean."""

from __future__ import annotations

import asyncio
import concurrent.futures
import ssl
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client

from actorflow.engine.errors import StoreBroken, StoreFull, StoreRefused
from actorflow.runtime.errors import ActorflowError, BadOption

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from nats.js import JetStreamContext

    from actorflow.engine.stores.nats.address import NatsAddress

__all__ = ["FAILURES", "Connection", "end_tasks", "explain"]

T = TypeVar("T")

NEEDED = (2, 12)
"""The oldest server that has atomic batches."""

FAILURES = (nats.errors.Error, OSError, asyncio.TimeoutError)
"""Errors on the way to a server."""

_PATIENCE = 10.0  # seconds for a single request
_OPENING = 30.0  # seconds for a connection: servers take some ten to choose a leader
_AGAIN = 0.05  # seconds until a task that has not ended is cancelled again
_NO_STREAM = 10_059  # a consumer may be gone as well: the server was started again
_FULL = (10023, 10047, 10077)  # no resources, no storage, the stream has its maximum of bytes


class Connection:
    """A client that reconnects by itself. Thread-safe.

    Raises:
        StoreRefused: no server can be reached, or denies access, or the servers have no leader.
        StoreBroken: the server is too old, or has no JetStream.

    """

    def __init__(self, address: NatsAddress, reconnected: Callable[[], None]) -> None:
        self._address = address
        self._reconnected = reconnected
        self._clients: list[Client] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"actorflow-nats-{address.name}", daemon=True
        )
        self._thread.start()
        try:
            self._client: Client = self.call(self._connect(), _OPENING)
        except BaseException:
            self._end_loop()
            raise
        self.js: JetStreamContext = self._client.jetstream(timeout=_PATIENCE)

    @property
    def client(self) -> Client:
        """The client, for coroutines that run on its loop."""
        return self._client

    @property
    def largest(self) -> int:
        """Bytes that a message may have, with its headers."""
        return self._client.max_payload

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float = _PATIENCE) -> T:
        """Run a coroutine on the loop, and return its result.

        Raises:
            ActorflowError: the request failed.

        """
        future = self.start(coroutine)
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError as error:
            future.cancel()
            msg = f"{self._address.shown} has not answered for {timeout:g} s"
            raise StoreRefused(msg) from error
        except FAILURES as error:
            raise explain(error, self._address) from error

    def start(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _connect(self) -> Client:
        await self._probe()
        client = self._new_client()
        await client.connect(
            self._address.servers, name="actorflow", max_reconnect_attempts=-1,
            connect_timeout=5, ping_interval=5, max_outstanding_pings=2,
            error_cb=_quiet, reconnected_cb=self._on_reconnected, **self._options(),
        )  # fmt: skip
        try:
            await self._wait_for_jetstream(client)
        except FAILURES as error:
            msg = f"{self._address.shown} offers no JetStream: {error or type(error).__name__}"
            raise StoreBroken(msg) from error
        return client

    async def _wait_for_jetstream(self, client: Client) -> None:
        """Return when JetStream answers: not before its servers have chosen a leader."""
        js = client.jetstream(timeout=1.0)
        begin = monotonic()
        while True:
            try:
                await js.account_info()
            except nats.errors.TimeoutError as error:
                waited = monotonic() - begin
                if waited > _OPENING - 2.0:
                    msg = f"the servers of {self._address.shown} have no leader for {waited:.0f} s"
                    raise StoreRefused(msg) from error
            else:
                return

    async def _probe(self) -> None:
        """Connect once and give up soon, so that wrong credentials are an error and not a wait."""
        told: list[Exception] = []

        async def note(error: Exception) -> None:
            told.append(error)

        probe = self._new_client()
        try:
            await probe.connect(
                self._address.servers, allow_reconnect=False, max_reconnect_attempts=1,
                connect_timeout=5, error_cb=note, **self._options(),
            )  # fmt: skip
        except nats.errors.NoServersError:
            raise (told or [nats.errors.NoServersError()])[-1] from None
        version = probe.connected_server_version
        await probe.close()
        if (version.major, version.minor) < NEEDED:
            needed = ".".join(map(str, NEEDED))
            msg = f"{self._address.shown} is NATS {version}: actorflow needs {needed} or newer"
            raise StoreBroken(msg)

    def _new_client(self) -> Client:
        client = Client()
        self._clients.append(client)
        return client

    def _options(self) -> dict[str, Any]:
        files = self._address.files
        options: dict[str, Any] = {"reconnect_time_wait": 0.1}
        if "creds" in files:
            options["user_credentials"] = files["creds"]
        if "nkey" in files:
            options["nkeys_seed"] = files["nkey"]
        if any(name.startswith("tls_") for name in files):
            try:
                context = ssl.create_default_context(cafile=files.get("tls_ca"))
                if "tls_cert" in files:
                    context.load_cert_chain(files["tls_cert"], files.get("tls_key"))
            except (OSError, ssl.SSLError) as error:
                msg = f"{self._address.shown}: the certificates cannot be read: {error}"
                raise BadOption(msg) from error
            options["tls"] = context
        return options

    async def _on_reconnected(self) -> None:
        self._reconnected()

    def close(self) -> None:
        """Close the connection, and end its thread."""
        try:
            self.call(self._client.close(), timeout=5.0)
        except ActorflowError:
            pass  # the server does not matter any more
        finally:
            self._end_loop()

    def _end_loop(self) -> None:
        self.start(self._end_tasks())
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._loop.close()

    async def _end_tasks(self) -> None:
        """End what a connection that was not closed in good order has left."""
        await end_tasks(asyncio.all_tasks() - {asyncio.current_task()})
        for client in self._clients:
            await asyncio.gather(client.close(), return_exceptions=True)
        self._loop.stop()


async def end_tasks(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and return once they have ended.

    A task may go on after it was cancelled: before Python 3.12, `asyncio.wait_for` ignores that if
    an answer arrives at the same moment. So they are cancelled until they end.
    """
    while tasks:
        for task in tasks:
            task.cancel()
        done, tasks = await asyncio.wait(tasks, timeout=_AGAIN)
        await asyncio.gather(*done, return_exceptions=True)


async def _quiet(_error: Exception) -> None:
    """Ignore the error: the waiting caller gets it, and the library would print a traceback."""


def explain(error: BaseException, address: NatsAddress) -> ActorflowError:
    """Return what an error means for a store."""
    text = str(error) or type(error).__name__
    if isinstance(error, nats.js.errors.NotFoundError) and error.err_code == _NO_STREAM:
        return StoreBroken(
            f"{address.shown}: the stream {address.stream!r} is gone ({text}); its records are "
            "lost unless the server has a copy"
        )
    if isinstance(error, nats.js.errors.APIError):
        if error.err_code in _FULL or "insufficient" in text or "maximum bytes" in text:
            return StoreFull(f"{address.shown} has no room: {text}")
        return StoreRefused(f"{address.shown} refused: {text}")
    return StoreRefused(f"{address.shown} cannot be reached: {text}")
