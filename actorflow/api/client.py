"""A client for the control socket of a live engine; the standard library is all that it needs."""

from __future__ import annotations

import http.client
import json
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from actorflow.api.addresses import UnixAddress, address_of, bindable
from actorflow.api.errors import ControlUnreachable, error_from
from actorflow.api.verbs.table import VerbCaller
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from actorflow.api.verbs.table import Verb

__all__ = ["Client"]

_OK = range(200, 300)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        with bindable(self._path) as name:
            self.sock.connect(name)


class Client(VerbCaller):
    """The verbs on an engine in another process. Thread-safe.

    What the engine refuses is raised here as the same error that it raises there.

    Args:
        address: the path of a socket, or `tcp://HOST:PORT`.
        token: what a TCP port wants.
        timeout: seconds for one request.

    Raises:
        ControlUnreachable: there is no engine, or it gave no answer.

    """

    def __init__(
        self, address: str | os.PathLike[str], *, token: str | None = None, timeout: float = 30.0
    ) -> None:
        self._address = address_of(address)
        self._token = token
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"<client of {self._address}>"

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        """Return a connection that is not opened yet, for requests of your own."""
        address = self._address
        if isinstance(address, UnixAddress):
            return _UnixConnection(address.path, timeout)
        return http.client.HTTPConnection(address.host, address.port, timeout=timeout)

    def request(
        self, method: str, path: str, body: Any = None, *, timeout: float | None = None
    ) -> Any:
        """Send one request and return the response.

        Raises:
            ActorflowError: what the engine raised.
            ControlUnreachable: there was no response. A change may be stored nevertheless.

        """
        connection = self.connection(self._timeout if timeout is None else timeout)
        headers = {"Connection": "close"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None
        if method == "POST":
            headers["Content-Type"] = "application/json"
            data = _json(body)
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            msg = f"no engine answers at {self._address}: {error or type(error).__name__}"
            raise ControlUnreachable(msg) from error
        finally:
            connection.close()
        try:
            found = json.loads(text)
        except ValueError:
            found = text.decode(errors="replace")
        if answer.status not in _OK:
            raise error_from(answer.status, found)
        return found

    def call(self, verb: Verb, parameters: dict[str, Any]) -> Any:
        """Call a verb of the engine and return its result."""
        patience = None
        if verb.waits is not None:
            default = next(each.default for each in verb.parameters if each.name == verb.waits)
            patience = parameters.get(verb.waits, default) + self._timeout
        path = "/health" if verb.name == "health" else verb.path
        if verb.method == "POST":
            return self.request("POST", path, parameters, timeout=patience)
        asked = f"{path}?{urlencode(parameters, doseq=True)}" if parameters else path
        return self.request("GET", asked, timeout=patience)

    def metrics(self) -> str:
        """Return the figures of the engine as Prometheus reads them."""
        found: str = self.request("GET", "/metrics")
        return found


def _json(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"only JSON can be sent to a live engine: {error}"
        raise BadOption(msg) from None
