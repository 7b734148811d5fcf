"""The actions: each takes a form, and returns the next page and a note about the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.api.pages.content.forms import json_of, value_of
from actorflow.api.pages.content.lists import BULK, filters_of, where
from actorflow.api.pages.content.page_request import whole
from actorflow.api.pages.links import link

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ACTIONS", "Form", "MissingField"]


class MissingField(Exception):
    """A form lacks a field."""


class Form(dict[str, str]):
    """The fields of a form; the last value of a repeated field counts."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def __missing__(self, name: str) -> str:
        msg = f"the form has no field {name!r}"
        raise MissingField(msg)

    def every(self, name: str) -> list[str]:
        """Return all values of a field."""
        return [text for each, text in self._pairs if each == name]


def _execution(form: Form, note: str) -> tuple[str, str]:
    return link("execution", id=form["id"]), note


def _cancel(verbs: Any, form: Form) -> tuple[str, str]:
    found = verbs.cancel(form["id"])
    return _execution(form, "cancelled" if found["cancelled"] else "had ended")


def _kill(verbs: Any, form: Form) -> tuple[str, str]:
    found = verbs.kill(form["id"])
    return _execution(form, "killed" if found["killed"] else "had ended")


def _send(verbs: Any, form: Form) -> tuple[str, str]:
    verbs.send(form["id"], json_of(form.get("body", "")), event=form.get("event") or None)
    return _execution(form, "sent")


def _pause(verbs: Any, form: Form) -> tuple[str, str]:
    verbs.pause(form["id"])
    return _execution(form, "paused: what arrives is kept")


def _resume(verbs: Any, form: Form) -> tuple[str, str]:
    verbs.resume(form["id"])
    return _execution(form, "resumed")


def _rewind(verbs: Any, form: Form) -> tuple[str, str]:
    verbs.rewind(form["id"], form["step"])
    return _execution(form, f"rewound to before step {form['step']}")


def _fork(verbs: Any, form: Form) -> tuple[str, str]:
    found = verbs.fork(form["id"], form["step"], id=form.get("new") or None)
    return link("execution", id=found["execution"]), f"forked from {form['id']}"


def _retry_step(verbs: Any, form: Form) -> tuple[str, str]:
    verbs.retry(form["id"], step=form["step"])
    return _execution(form, f"step {form['step']} will be tried again")


def _discard(verbs: Any, form: Form) -> tuple[str, str]:
    verbs.discard(form["id"], whole(form["event"]))
    return _execution(form, "discarded: no wait gets it any more")


def _delete(verbs: Any, form: Form) -> tuple[str, str]:
    verbs.delete(form["id"])
    return "executions", f"{form['id']} was deleted"


def _letters(form: Form) -> list[int] | None:
    return [whole(each) for each in form.every("letter")] or None


def _retry(verbs: Any, form: Form) -> tuple[str, str]:
    found = verbs.retry(execution=form.get("id") or None, letters=_letters(form))
    return "dead", f"{found['retried']} messages will be tried again"


def _purge(verbs: Any, form: Form) -> tuple[str, str]:
    found = verbs.bury(letters=[whole(form["letter"]), *(_letters(form) or [])])
    return "dead", f"{found['purged']} dead letters deleted"


def _return_task(verbs: Any, form: Form) -> tuple[str, str]:
    found = verbs.return_task(form["task"], value=value_of(form))
    return "tasks", "answered" if found["wanted"] else "nobody waited for it any more"


def _fail_task(verbs: Any, form: Form) -> tuple[str, str]:
    why = form.get("reason") or "failed from the dashboard"
    found = verbs.fail_task(form["task"], error=why)
    return "tasks", "failed" if found["wanted"] else "nobody waited for it any more"


def _bulk(verbs: Any, form: Form) -> tuple[str, str]:
    filters = filters_of(form)
    if form["action"] not in BULK:
        msg = f"action {form['action']!r:.80} is unknown: choose one of {', '.join(BULK)}"
        raise ValueError(msg)
    found = verbs.bulk(form["action"], **where(filters), expected=whole(form["expected"]))
    note = f"{form['action']}: {found['done']} done, {found['failed']} refused"
    if found["errors"]:
        note += f" ({found['errors'][0]})"
    return link("executions", **filters), note


def _schedule(verb: str, note: str) -> Callable[[Any, Form], tuple[str, str]]:
    def act(verbs: Any, form: Form) -> tuple[str, str]:
        getattr(verbs, verb)(form["name"])
        return "schedules", f"{form['name']} {note}"

    return act


def _worker(verb: str, note: str) -> Callable[[Any, Form], tuple[str, str]]:
    def act(verbs: Any, form: Form) -> tuple[str, str]:
        getattr(verbs, verb)(form["worker"])
        return link("worker", name=form["worker"]), note

    return act


def _worker_letters(verb: str, note: str) -> Callable[[Any, Form], tuple[str, str]]:
    def act(verbs: Any, form: Form) -> tuple[str, str]:
        getattr(verbs, verb)(form["worker"], numbers=_letters(form))
        return link("worker", name=form["worker"]), note

    return act


ACTIONS: dict[str, Callable[[Any, Form], tuple[str, str]]] = {
    "cancel": _cancel,
    "kill": _kill,
    "send": _send,
    "pause": _pause,
    "resume": _resume,
    "rewind": _rewind,
    "fork": _fork,
    "retry-step": _retry_step,
    "discard": _discard,
    "delete": _delete,
    "retry": _retry,
    "purge": _purge,
    "return-task": _return_task,
    "fail-task": _fail_task,
    "do-bulk": _bulk,
    "pause-schedule": _schedule("pause_schedule", "is suspended"),
    "resume-schedule": _schedule("resume_schedule", "goes on"),
    "trigger-schedule": _schedule("trigger_schedule", "was triggered"),
    "delete-schedule": _schedule("delete_schedule", "was deleted"),
    "pause-worker": _worker("pause_worker", "paused: what arrives is kept"),
    "resume-worker": _worker("resume_worker", "resumed"),
    "retry-worker": _worker_letters("retry_worker", "dead letters will be tried again"),
    "purge-worker": _worker_letters("purge_worker", "dead letters deleted"),
}
"""The actions by the last part of their path."""
