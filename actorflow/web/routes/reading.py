"""How bodies are read: JSON as its standard says, without the numbers that Python adds to it."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NoReturn

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.responses import Response

__all__ = ["JsonRoute"]


class _JsonRequest(Request):
    async def json(self) -> Any:
        """Return the body. 422 for `NaN`, `Infinity` and numbers that no float can hold."""
        return json.loads(await self.body(), parse_constant=_refuse, parse_float=_finite)


class JsonRoute(APIRoute):
    """A route that refuses NaN and Infinity, which no answer in JSON could contain."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return handle_json


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise HTTPException(422, f"{text:.40} is not a JSON number: send null or a text instead")
