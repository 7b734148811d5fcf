"""Where a store on NATS is: what its URL says."""

from __future__ import annotations

import re
from math import inf
from urllib.parse import parse_qsl, urlsplit

from actorflow.engine.stores.nats.contexts import read_context
from actorflow.runtime.errors import BadOption

__all__ = ["NatsAddress"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OURS = {"lease": "6", "partitions": "64", "replicas": "1", "timeout": "30"}
_CREDENTIALS = ("creds", "nkey", "tls_ca", "tls_cert", "tls_key")


class NatsAddress:
    """The servers, the name of the store, and how to get in.

    Ours are `replicas` (of a stream that is created), `partitions` (likewise), `lease` (seconds
    after which a worker that is silent counts as dead) and `timeout` (seconds for which a commit
    tries to reach the servers). The servers' are `creds` and `nkey` (files), `tls_ca`, `tls_cert`
    and `tls_key` (files). All of the servers' may come from a context of the `nats` command line
    instead: `nats:///orders?context=production`.

    >>> address = NatsAddress("nats://me:secret@one:4222,two/orders?replicas=3")
    >>> address.name, address.servers, address.shown
    ('orders', ['nats://me:secret@one:4222', 'nats://me:secret@two'], 'nats://one:4222,two/orders')

    Raises:
        BadOption: it cannot be read.

    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        user, at, hosts = parts.netloc.rpartition("@")
        self.shown = f"nats://{hosts}{parts.path}"
        """For messages: without the password."""
        self.name = parts.path.removeprefix("/")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        context = options.pop("context", None)
        if bool(hosts) == (context is not None) or not _NAME.fullmatch(self.name):
            msg = (
                f"{self.shown}: the URL of a store on NATS names the store and either servers or a "
                "context, as in nats://localhost:4222/orders or nats:///orders?context=production"
            )
            raise BadOption(msg)
        self.servers = [f"nats://{user}{at}{host}" for host in hosts.split(",")]
        given = dict(_OURS)
        self.files: dict[str, str] = {}
        if context is not None:
            found = read_context(context)
            self.servers, self.files = found.servers, dict(found.files)
            self.shown = f"nats:///{self.name}?context={context}"
        for key, value in options.items():
            if key in given:
                given[key] = value
            elif key in _CREDENTIALS:
                self.files[key] = value
            else:
                known = ", ".join((*_OURS, *_CREDENTIALS, "context"))
                msg = f"{self.shown}: {key!r} in the URL is unknown; there are {known}"
                raise BadOption(msg)
        self.lease = _number(given, "lease", float)
        self.timeout = _number(given, "timeout", float)
        self.partitions = int(_number(given, "partitions", int))
        self.replicas = int(_number(given, "replicas", int))

    @property
    def stream(self) -> str:
        """The stream that holds the log."""
        return f"actorflow-{self.name}"

    @property
    def subject(self) -> str:
        """What the log is published to."""
        return f"actorflow.{self.name}.log"

    @property
    def bucket(self) -> str:
        """The object store that holds snapshots."""
        return f"actorflow-{self.name}"


def _number(given: dict[str, str], name: str, kind: type[float]) -> float:
    try:
        value = kind(given[name])
    except ValueError:
        value = 0
    if not 0 < value < inf:
        msg = f"{name}={given[name]!r} in the URL of a store is not a number above 0"
        raise BadOption(msg)
    return value
