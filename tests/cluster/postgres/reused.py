"""Stores in schemas that are emptied and used again: to make one takes longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from actorflow.engine.stores.postgres.store import PostgresStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import Postgres

__all__ = ["emptied", "reopened"]


class _Reused(PostgresStore):
    """A store that owns all partitions, and whose schema nobody else has."""

    taken: ClassVar[set[str]] = set()

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.taken.add(self.address.schema)
        self.join()

    def close(self) -> None:
        super().close()
        self.taken.discard(self.address.schema)


def _directly(url: str) -> str:
    return url


def emptied(
    postgres: Postgres, through: Callable[[str], str] = _directly
) -> Callable[[], PostgresStore]:
    """Return what makes an empty store; several may be open at the same time."""

    def make() -> PostgresStore:
        free = next(name for name in map("c{}".format, range(9)) if name not in _Reused.taken)
        return _Reused(through(postgres.empty_url(free)))

    return make


def reopened(
    postgres: Postgres, through: Callable[[str], str] = _directly
) -> Callable[[Any], PostgresStore]:
    """Return what opens a store again that is closed."""
    return lambda store: _Reused(through(postgres.url(store.address.schema)))
