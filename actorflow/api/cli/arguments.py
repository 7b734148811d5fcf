"""The arguments that commands share, and the conversion of their strings."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from actorflow.engine import bodies
from actorflow.engine.tags import tags_from
from actorflow.runtime.errors import BadOption

__all__ = [
    "AsJson",
    "Data",
    "ExecutionId",
    "Limit",
    "Object",
    "StoreItself",
    "StoreName",
    "Tags",
    "as_data",
    "as_object",
]

_BEHIND = " Quote it: '{\"order\": 7}'."


def as_data(text: str | None) -> Any:
    """Return the value of a JSON string.

    Raises:
        typer.BadParameter: it is not JSON.

    """
    if text is None:
        return None
    try:
        return bodies.from_json(text)
    except ValueError as error:
        msg = f"{text!r:.80} is not JSON ({error}): quote strings twice, '\"tea\"'"
        raise typer.BadParameter(msg) from None


def as_object(text: str | None) -> dict[str, Any] | None:
    """Return the JSON object that a string stands for.

    Raises:
        typer.BadParameter: it is not one.

    """
    found = as_data(text)
    if found is None or isinstance(found, dict):
        return found
    msg = f"{text!r:.80} is not a JSON object, such as '{{\"order\": 7}}'"
    raise typer.BadParameter(msg)


def _check_tags(texts: list[str] | None) -> list[str] | None:
    try:
        tags_from(texts or ())
    except BadOption as error:
        raise typer.BadParameter(str(error)) from None
    return texts


StoreName = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="A file or URL; or a live engine: a socket, or tcp://HOST:PORT. "
        "By default ACTORFLOW_STORE.",
    ),
]
StoreItself = Annotated[
    str, typer.Argument(metavar="STORE", help="A file or URL; by default ACTORFLOW_STORE.")
]
ExecutionId = Annotated[str, typer.Argument(metavar="EXECUTION", help="Its id.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Tags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        metavar="NAME=VALUE",
        callback=_check_tags,
        help="Only executions with this tag; repeat it for several.",
    ),
]
Limit = Annotated[int, typer.Option(min=1, max=1_000_000, help="Rows at most.")]
Data = Annotated[str | None, typer.Argument(metavar="JSON", help="Plain data." + _BEHIND)]
Object = Annotated[str | None, typer.Option(metavar="JSON", help="A JSON object." + _BEHIND)]
