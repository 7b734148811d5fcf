"""How answers are written, and how a route reaches the engine."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from actorflow.web.steering import MOST, Steering

__all__ = ["Answer", "Body", "Limit", "Steered", "refusals"]


class Answer(JSONResponse):
    """JSON of what `Steering` returns, or of an error."""

    def render(self, content: Any) -> bytes:
        """Return the bytes. ASCII, because texts of errors may hold what UTF-8 cannot."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


class Body(BaseModel):
    """The body of a request: fields that nobody reads are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Refused(BaseModel):
    """Why a request was refused."""

    error: str
    message: str


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says of the answers that report an error."""
    return {status: {"model": Refused} for status in (*statuses, 422)}


def _steering(request: Request) -> Steering:
    found: Steering = request.app.state.steering
    return found


Steered = Annotated[Steering, Depends(_steering)]
"""A parameter of a route: the engine's verbs."""

Limit = Annotated[int, Query(ge=1, le=MOST)]
"""A parameter of a route: how many rows are answered."""
