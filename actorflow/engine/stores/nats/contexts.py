"""Contexts of the `nats` command line: files that say where servers are, and how to get in."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from actorflow.runtime.errors import BadOption, near

__all__ = ["NatsContext", "read_context"]

_NAME = re.compile(r"[^/\\]{1,200}")
_FILES = {"creds": "creds", "nkey": "nkey", "ca": "tls_ca", "cert": "tls_cert", "key": "tls_key"}


class NatsContext(msgspec.Struct, frozen=True):
    """The part of a context that matters here."""

    servers: list[str]
    files: dict[str, str]
    """Credentials and certificates, named as in the URL of a store."""


def _directory() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "nats"


def read_context(name: str) -> NatsContext:
    """Return a context by its name; without one, that which `nats context select` has chosen.

    Raises:
        BadOption: no context has that name, or it cannot be read.

    """
    directory = _directory() / "context"
    if not name:
        chosen = _directory() / "context.txt"
        try:
            name = chosen.read_text().strip()
        except OSError as error:
            msg = f"context= names none, and none is selected: {error}; give context=NAME"
            raise BadOption(msg) from error
    path = directory / f"{name}.json"
    if not _NAME.fullmatch(name) or not path.is_file():
        known = [each.stem for each in directory.glob("*.json")]
        msg = f"there is no context {name!r} in {directory}{near(name, known)}"
        raise BadOption(msg)
    try:
        found: dict[str, Any] = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        return _context(found)
    except (OSError, msgspec.MsgspecError, TypeError, AttributeError) as error:
        msg = f"the context in {path} cannot be read: {error}"
        raise BadOption(msg) from error


def _context(found: dict[str, Any]) -> NatsContext:
    user, password, token = (found.get(key) or "" for key in ("user", "password", "token"))
    access = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
    if token:
        access = f"{quote(token, safe='')}@"
    servers = []
    for each in (found.get("url") or "nats://localhost:4222").split(","):
        scheme, _, host = each.strip().rpartition("://")
        servers.append(f"{scheme or 'nats'}://{'' if '@' in host else access}{host}")
    files = {
        ours: os.path.expandvars(Path(found[theirs]).expanduser())
        for theirs, ours in _FILES.items()
        if found.get(theirs)
    }
    return NatsContext(servers, files)
