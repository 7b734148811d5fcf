"""A worker that only knows HTTP and JSON, for workflows in the notation of golden histories.

`worker.py URL LANG METHODS NOTES HANGS` is a worker as a process: it does jobs until it is
killed. Its tasks return their input; METHODS are the methods of its workflows by their names, as
JSON; in a task, or a decision, that HANGS names, it notes that and goes no further.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from actorflow.testing.golden.notation import NotationRaised, Scope, interpret

if TYPE_CHECKING:
    from collections.abc import Callable

Json = Any
PATIENCE = 20.0


class Refused(Exception):
    """The agent has answered with an error."""

    def __init__(self, status: int, body: Json) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status
        self.body = body


class Agency:
    """The routes of an agent."""

    def __init__(
        self, url: str, lang: str = "test", env: str = "default", token: str | None = None
    ) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        self._host, self._port = address.hostname, address.port
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._jobs = f"/env/{quote(env)}/lang/{quote(lang)}/job"

    def request(self, method: str, path: str, body: Json = None) -> Json:
        connection = http.client.HTTPConnection(self._host, self._port or 80, timeout=PATIENCE)
        try:
            data = None if method == "GET" else json.dumps(body).encode()
            connection.request(method, path, data, self._headers)
            answer = connection.getresponse()
            found = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200:
            raise Refused(answer.status, found)
        return found

    def job(self, wait: float = PATIENCE / 2) -> Json:
        return self.request("GET", f"{self._jobs}?wait={wait}")

    def next_branch(self, uuid: str) -> Json:
        return self.request("GET", f"/decisions/{uuid}/branch")

    def finish_branch(self, uuid: str, body: Json) -> Json:
        return self.request("POST", f"/decisions/{uuid}/branch", body)

    def execute(self, uuid: str, works: Json) -> Json:
        return self.request("POST", f"/decisions/{uuid}/execute", works)

    def error(self, uuid: str, body: Json) -> Json:
        return self.request("POST", f"/decisions/{uuid}/error", body)

    def task(self, uuid: str, **body: Json) -> Json:
        return self.request("POST", f"/tasks/{uuid}", body)


class Worker:
    """Does jobs, one after the other."""

    def __init__(
        self,
        agency: Agency,
        workflows: dict[str, Json],
        task: Callable[[str, Json], Json] = lambda _name, given: given,
    ) -> None:
        self.agency = agency
        self.workflows = workflows
        self.do_task = task
        self.done: list[Json] = []

    def work(self, wait: float = PATIENCE / 2) -> Json:
        """Do the next job; return it."""
        job = self.agency.job(wait)
        if job["action"] == "DecisionScheduled":
            self.decide(job)
        elif job["action"] == "TaskScheduled":
            output = self.do_task(job["name"], job["input"])
            self.agency.task(job["uuid"], status="completed", output=output)
        self.done.append(job)
        return job

    def work_until(self, condition: Callable[[], object]) -> None:
        """Do jobs until a condition holds."""
        while not condition():
            self.work(wait=0.05)

    def next_task(self) -> Json:
        """Take decisions until there is a task; return it."""
        while (job := self.agency.job())["action"] != "TaskScheduled":
            self.decide(job)
        return job

    def next_tasks(self, count: int) -> dict[str, Json]:
        """Take decisions until there are tasks; return them by name.

        Tasks that were scheduled together wait in the order in which threads have offered them.
        """
        jobs = [self.next_task() for _ in range(count)]
        return {job["name"]: job for job in jobs}

    def decide(self, job: Json) -> None:
        """Take a decision."""
        uuid = job["uuid"]
        while given := self.agency.next_branch(uuid):
            try:
                body = self._execute(uuid, self.workflows[job["name"]], given)
            except NotationRaised as error:
                body = {"kind": "failed", "name": "NotationRaised", "message": str(error)}
                self.agency.error(uuid, {**body, "branch_key": given["branch"]["key"]})
                return
            if body is None:
                self.agency.error(uuid, {"kind": "modified"})
                return
            self.agency.finish_branch(uuid, body)

    def _execute(self, uuid: str, methods: Json, given: Json) -> Json:
        branch, properties = given["branch"], given["properties"]
        code = interpret(methods.get(branch["type"], []), Scope(properties, branch))
        outputs: list[Json] | None = None
        try:
            for number in count():
                call = code.send(outputs)
                works = [_wire(work, f"{number}.{at}") for at, work in enumerate(call.steps)]
                reply = self.agency.execute(uuid, [{**work, "sync": call.sync} for work in works])
                if reply["status"] == "modified":
                    return None
                outputs = reply.get("outputs")
                if call.sync and reply["status"] == "completed":
                    properties.clear()
                    properties.update(reply["properties"])
                elif call.sync:
                    return {"properties": properties}
        except StopIteration as stop:
            if stop.value is not None or branch["type"] == "handle":
                return {"properties": properties, "output": stop.value}
        return {"properties": properties}


def _wire(work: Json, position: str) -> Json:
    if "wait" in work:
        wait = dict(work["wait"])
        event = wait.pop("event", None)
        return {
            "name": "Wait",
            "type": "wait",
            "event": event,
            "timeout": wait or None,
            "position": position,
        }
    type_ = "task" if "task" in work else "flow"
    return {
        "name": work[type_],
        "type": type_,
        "input": work["input"],
        "timeout": work.get("timeout"),
        "position": position,
    }


def main(url: str, lang: str, workflows: str, notes: str, hangs: str) -> None:
    file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    agency = Agency(url, lang)

    def note(text: str) -> None:
        os.write(file, f"{text}\n".encode())

    def do(name: str, given: Json) -> Json:
        note(f"{name} {json.dumps(given)}")
        if hangs == "task":
            threading.Event().wait()
        return given

    def hang(_uuid: str, _works: Json) -> Json:
        note("hangs in a decision")
        threading.Event().wait()

    if hangs == "decision":
        agency.execute = hang  # type: ignore[method-assign, assignment]
    worker = Worker(agency, json.loads(workflows), do)
    while True:
        try:
            worker.work()
        except Refused:
            continue  # somebody else has the job
        except (OSError, http.client.HTTPException):
            time.sleep(0.02)  # the engine is being restarted


if __name__ == "__main__":
    main(*sys.argv[1:])
