"""Taskers behind a URL."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from actorflow.engine.errors import TaskFailed
from actorflow.engine.tasks.task import HOLD, TaskAttempt
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["http_tasker"]

_TIMEOUT = 60.0  # seconds for an answer, unless the tasker has a timeout


def http_tasker(url: str, timeout: float | None) -> Callable[[TaskAttempt], Any]:
    """Make a tasker that posts each task, as JSON, to a URL.

    The answer 200 has the result as JSON, 202 says that it comes later (`return_task`), 204 that
    there is no result; anything else is a failure. The header `Idempotency-Key` is the task's id.

    Raises:
        BadOption: it is not an HTTP URL.

    """
    if not url.startswith(("http://", "https://")):
        msg = f"{url!r} is neither a function nor a URL that begins with http:// or https://"
        raise BadOption(msg)

    def post(task: TaskAttempt) -> Any:
        fields = {
            "id": task.id,
            "execution": task.execution,
            "tasker": task.tasker,
            "attempt": task.attempt,
            "body": task.body,
        }
        request = urllib.request.Request(  # noqa: S310 - checked above
            url,
            data=json.dumps(fields).encode(),
            headers={"Content-Type": "application/json", "Idempotency-Key": task.id},
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout or _TIMEOUT) as answer:  # noqa: S310
                if answer.status == HTTPStatus.ACCEPTED:
                    return HOLD
                text = answer.read()
                return json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                text = error.read(500).decode(errors="replace")
            msg = f"{url} answered {error.code}: {text}"
            raise TaskFailed(msg) from None

    return post
