"""Which store is meant: a file, `":memory:"`, or a URL whose scheme says who opens it.

Packages make their scheme known as an entry point of the group `actorflow.stores`. So the engine
knows none of them, and looks for them only when it is given a URL.
"""

from __future__ import annotations

import difflib
import re
from os import PathLike
from typing import TYPE_CHECKING, Any

from actorflow.engine.stores.validation import check_durability
from actorflow.runtime.errors import BadOption, install_hint

if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.metadata import EntryPoint
    from pathlib import Path

    from actorflow.engine.stores.protocol import Store

__all__ = ["GROUP", "open_store", "scheme_of", "without_password"]

GROUP = "actorflow.stores"
"""Entry points `scheme = "module:function"`, called as `function(url, **options)`.

The options are those of `open_store`; they may become more.
"""

_URL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)  # C://orders.db is a file


def scheme_of(where: Any) -> str | None:
    """Return the scheme of a URL; `None` for a file.

    >>> scheme_of("nats://one,two/orders"), scheme_of("orders.db"), scheme_of("C://orders.db")
    ('nats', None, None)
    """
    found = _URL.match(where) if isinstance(where, str) else None
    return None if found is None else found[1].lower()


def without_password(where: str) -> str:
    """Return the name of a store as messages may show it.

    >>> without_password("postgresql://me:secret@db/orders?password=secret&lease=2")
    'postgresql://me@db/orders?password=...&lease=2'
    >>> without_password("orders.db")
    'orders.db'
    """
    if scheme_of(where) is None:
        return where
    hidden = re.sub(r"://([^/:@]*):[^/]*@", r"://\1@", where, count=1)
    return re.sub(r"([?&]password=)[^&]*", r"\1...", hidden)


def open_store(
    where: str | Path | Store,
    *,
    durability: str = "full",
    check: bool = True,
    read_only: bool = False,
    name: str | None = None,
) -> Store:
    """Open a store.

    Args:
        where: a file, `":memory:"`, a URL, or a store, which is returned as it is.
        durability: what a commit has outlived when it returns; see `SqliteStore`.
        check: verify the content, as far as the store can; `False` accepts the loss of a log.
        read_only: look, while another process may be writing.
        name: the name of this engine among the engines that share the store.

    Raises:
        BadOption: the scheme of the URL or the durability is unknown.
        StoreBusy, StoreBroken: see `SqliteStore`; stores of others may have their own.

    """
    if not isinstance(where, (str, PathLike)):
        _refuse_strangers(where, "what the engine was given")
        return where
    check_durability(durability)
    scheme = scheme_of(where)
    options: dict[str, Any] = {"durability": durability, "check": check, "read_only": read_only}
    if scheme is not None:
        named = {} if name is None else {"name": name}
        return _open_url(scheme, str(where), {**options, **named})
    if where == ":memory:":
        from actorflow.engine.stores.memory import MemoryStore  # noqa: PLC0415 - only where used

        return MemoryStore()
    from actorflow.engine.stores.sqlite.store import SqliteStore  # noqa: PLC0415 - loads sqlite3

    return SqliteStore(where, durability=durability, check=check, read_only=read_only)


def _open_url(scheme: str, url: str, options: dict[str, Any]) -> Store:
    entry = _find(scheme, url)
    try:
        factory = entry.load()
    except (ImportError, AttributeError) as error:
        msg = f"{url!r}: {entry.value}, which opens {scheme}:// stores, cannot be loaded: {error}"
        if isinstance(error, ModuleNotFoundError) and entry.value.startswith("actorflow."):
            msg += f". Install what it needs: {install_hint('cluster')}"
        raise BadOption(msg) from error
    store: Store = factory(url, **options)
    _refuse_strangers(store, f"what {entry.value} made of {url!r}")
    return store


def _refuse_strangers(store: object, what: str) -> None:
    if not hasattr(store, "commit"):
        msg = f"{what} is {store!r:.200}, which is not a store: it has no commit"
        raise BadOption(msg)


def _find(scheme: str, url: str) -> EntryPoint:
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow, and for URLs only

    known = entry_points(group=GROUP)
    found = {entry.value: entry for entry in known if entry.name == scheme}
    if not found:
        raise BadOption(_unknown(scheme, url, sorted({entry.name for entry in known})))
    if len(found) > 1:
        msg = f"{url!r}: several packages open {scheme}:// stores ({', '.join(sorted(found))})"
        raise BadOption(msg)
    return next(iter(found.values()))


def _unknown(scheme: str, url: str, known: Iterable[str]) -> str:
    shown = ", ".join(f"{name}://" for name in known) or "none at all"
    close = difflib.get_close_matches(scheme, known, n=1)
    hint = f"; did you mean {close[0]}://?" if close else ""
    return f"{url!r}: no installed package opens {scheme}:// stores; there are {shown}{hint}"
