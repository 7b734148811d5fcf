"""The dashboard as an application for web servers and frameworks."""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from typing import TYPE_CHECKING

from actorflow.runtime.errors import BadOption, MissingExtra, install_hint

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from fastapi import FastAPI
    from starlette.requests import Request

    from actorflow.engine.engine import BareEngine

__all__ = ["web_app"]


def web_app(
    engine: BareEngine,
    access: Callable[[Request], Literal["none", "read", "write"] | None] | None = None,
) -> FastAPI:
    """Return the dashboard of an engine in this process. Needs the extra `web`.

    Mount it on your application: `app.mount("/actorflow", af.web_app(engine, access=resolver))`.

    Args:
        engine: what to show.
        access: returns what a request may do: "write", "read", or "none" (or `None`). It is called
            in a thread for each request. By default, programs of this machine may read, and nobody
            may act.

    Raises:
        BadOption: `access` is not a function that returns at once.
        MissingExtra: the extra `web` is not installed.

    """
    given: Any = access
    if given is not None and (not callable(given) or inspect.iscoroutinefunction(given)):
        msg = (
            f"access={access!r:.80} must be a function without async that returns 'none', 'read' "
            "or 'write' for a request"
        )
        raise BadOption(msg)
    try:
        from actorflow.api.pages.app import create_pages  # noqa: PLC0415 - needs the extra
        from actorflow.api.pages.security import read_only_here  # noqa: PLC0415
        from actorflow.api.verbs.table import Verbs  # noqa: PLC0415
    except ImportError as error:
        msg = f"the dashboard needs {error.name}: {install_hint('web')}"
        raise MissingExtra(msg) from error
    verbs: Any = Verbs(engine)
    return create_pages(lambda **_: nullcontext(verbs), access or read_only_here)
