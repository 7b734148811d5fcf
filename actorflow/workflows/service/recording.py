"""An instance as a file: all that is recorded of it, to hold new code against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.engine.operations.export import readable, unreadable
from actorflow.runtime.errors import BadOption
from actorflow.workflows.instance import state as instances

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actorflow.workflows.instance.state import InstanceState
    from actorflow.workflows.service.stored import StoredInstance

__all__ = ["record_of", "recorded_state"]

_FORMAT = 1


def record_of(stored: StoredInstance) -> dict[str, Any]:
    """Return what is recorded of an instance, as data that JSON can hold."""
    state = stored.instance
    return {
        "actorflow": "workflow",
        "format": _FORMAT,
        "id": state.id,
        "workflow": state.workflow_name,
        "versions": [each.version for each in stored.versions],
        "state": readable(instances.encode(state)),
    }


def recorded_state(record: Mapping[str, Any]) -> InstanceState:
    """Return the state that `record_of` has recorded.

    Raises:
        BadOption: it is not what `record_of` returns.

    """
    try:
        if record["actorflow"] != "workflow" or record["format"] != _FORMAT:
            raise ValueError(f"its format is {record['format']!r:.40}, not {_FORMAT}")  # noqa: TRY301
        return instances.decode(unreadable(record["state"]) or b"")
    except (KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
        msg = (
            f"{record!r:.80} is not a recorded workflow ({type(error).__name__}: {error}): take "
            "what handle.export() or `actorflow workflows export` returned"
        )
        raise BadOption(msg) from error
