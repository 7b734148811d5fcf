"""A client for the control socket of a live engine; the standard library is all that it needs."""

from __future__ import annotations

import http.client
import json
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from actorflow.runtime.errors import BadOption
from actorflow.web.addresses import UnixAddress, address_of, bindable
from actorflow.web.errors import ControlUnreachable, error_from
from actorflow.web.steering import LIMIT

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

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


class Client:
    """The verbs of `Steering`, on an engine in another process. Thread-safe.

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
        """Send one request and return what was answered.

        Raises:
            ActorflowError: what the engine raised.
            ControlUnreachable: nobody answered. A change may be stored all the same.

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

    def _get(self, path: str, *, patience: float | None = None, **query: Any) -> Any:
        given = {name: value for name, value in query.items() if value is not None}
        asked = f"{path}?{urlencode(given, doseq=True)}" if given else path
        return self.request("GET", asked, timeout=patience)

    def _post(self, path: str, **body: Any) -> Any:
        return self.request("POST", path, body)

    # Looking.

    def health(self) -> dict[str, Any]:
        """Return whether the engine runs, and which process it is in."""
        found: dict[str, Any] = self._get("/health")
        return found

    def statistics(self) -> dict[str, Any]:
        """Return the figures of the engine."""
        found: dict[str, Any] = self._get("/api/statistics")
        return found

    def metrics(self) -> str:
        """Return the figures of the engine as Prometheus reads them."""
        found: str = self._get("/metrics")
        return found

    def executions(
        self,
        *,
        kind: str | None = None,
        status: str | None = None,
        parent: str | None = None,
        tag: Sequence[str] = (),
        after: Any = None,
        limit: int = LIMIT,
    ) -> dict[str, Any]:
        """Return executions in the order of their ids, and where the next page begins.

        With `tag`, only those that have all of these: texts such as `customer=c-7`.
        """
        found: dict[str, Any] = self._get(
            "/api/executions",
            kind=kind,
            status=status,
            parent=parent,
            tag=list(tag),
            after=after,
            limit=limit,
        )
        return found

    def execution(self, execution: str, *, limit: int = LIMIT) -> dict[str, Any]:
        """Return all that is stored of an execution."""
        found: dict[str, Any] = self._get("/api/execution", id=execution, limit=limit)
        return found

    def wait(self, execution: str, timeout: float = 30.0) -> dict[str, Any]:
        """Wait until an execution has ended, or failed.

        Raises:
            WaitTimeout: not in time. It goes on.

        """
        found: dict[str, Any] = self._get(
            "/api/wait", patience=timeout + self._timeout, id=execution, timeout=timeout
        )
        return found

    def tasks(
        self,
        *,
        execution: str | None = None,
        tasker: str | None = None,
        after: Any = None,
        limit: int = LIMIT,
    ) -> dict[str, Any]:
        """Return the tasks that have not ended."""
        found: dict[str, Any] = self._get(
            "/api/tasks", execution=execution, tasker=tasker, after=after, limit=limit
        )
        return found

    # Executions and flows.

    def start(self, kind: str, body: Any = None, *, id: str | None = None) -> dict[str, Any]:  # noqa: A002
        """Start an execution of a kind."""
        found: dict[str, Any] = self._post("/api/start", kind=kind, body=body, id=id)
        return found

    def start_workflow(
        self,
        workflow: str,
        properties: dict[str, Any] | None = None,
        *,
        id: str | None = None,  # noqa: A002
    ) -> dict[str, Any]:
        """Start a workflow by its name."""
        found: dict[str, Any] = self._post(
            "/api/start-workflow", workflow=workflow, properties=properties, id=id
        )
        return found

    def send(
        self, execution: str, body: Any = None, *, kind: str | None = None, key: str | None = None
    ) -> dict[str, Any]:
        """Send a message to an execution."""
        found: dict[str, Any] = self._post(
            "/api/send", execution=execution, body=body, kind=kind, key=key
        )
        return found

    def cancel(self, execution: str, target: Any = None) -> dict[str, Any]:
        """Cancel an execution, or the part of it that `target` names."""
        found: dict[str, Any] = self._post("/api/cancel", execution=execution, target=target)
        return found

    def launch(
        self,
        flow: str,
        payload: dict[str, Any] | None = None,
        *,
        vars: dict[str, Any] | None = None,  # noqa: A002 - the word of the language
        domain: str | None = None,
        id: str | None = None,  # noqa: A002
    ) -> dict[str, Any]:
        """Launch a flow."""
        found: dict[str, Any] = self._post(
            "/api/launch", flow=flow, payload=payload, vars=vars, domain=domain, id=id
        )
        return found

    def signal(
        self, execution: str, name: str, payload: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a signal to a flow."""
        found: dict[str, Any] = self._post(
            "/api/signal", execution=execution, name=name, payload=payload
        )
        return found

    # Tasks.

    def return_task(self, task: str, value: Any = None) -> dict[str, Any]:
        """Return a task that a tasker holds, with its result."""
        found: dict[str, Any] = self._post("/api/return-task", task=task, value=value)
        return found

    def fail_task(self, task: str, error: str) -> dict[str, Any]:
        """Say that a task has failed."""
        found: dict[str, Any] = self._post("/api/fail-task", task=task, error=error)
        return found

    # Dead letters, and forgetting.

    def dead_letters(
        self, *, execution: str | None = None, after: Any = None, limit: int = LIMIT
    ) -> dict[str, Any]:
        """Return dead letters, oldest first."""
        found: dict[str, Any] = self._get(
            "/api/dead-letters", execution=execution, after=after, limit=limit
        )
        return found

    def retry(
        self, *, execution: str | None = None, letters: Sequence[Any] | None = None
    ) -> dict[str, Any]:
        """Re-queue dead letters: those named, or all."""
        found: dict[str, Any] = self._post(
            "/api/dead-letters/retry", execution=execution, letters=letters
        )
        return found

    def bury(
        self, *, execution: str | None = None, letters: Sequence[Any] | None = None
    ) -> dict[str, Any]:
        """Forget dead letters: those named, or all."""
        found: dict[str, Any] = self._post(
            "/api/dead-letters/purge", execution=execution, letters=letters
        )
        return found

    def purge(self, *, days: float) -> dict[str, Any]:
        """Forget executions that ended longer ago."""
        found: dict[str, Any] = self._post("/api/purge", days=days)
        return found


def _json(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"only JSON can be sent to a live engine: {error}"
        raise BadOption(msg) from None
