"""Actors that several tests use."""

from __future__ import annotations

import threading
from typing import Any

import pykka

import actorflow as af
from tests.runtime.worker.probe import PATIENCE


class Echo(af.Actor):
    """Answers with the message, raises it if it is an exception, and records its hooks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.log: list[Any] = []

    def on_start(self) -> None:
        self.log.append("start")

    def on_receive(self, message: Any) -> Any:
        self.log.append(message)
        if isinstance(message, BaseException):
            raise message
        return message

    def on_stop(self) -> None:
        self.log.append("stop")

    def on_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
        self.log.append(exception_value)

    def double(self, number: int) -> int:
        return 2 * number


class Gate(af.Actor):
    """Calls what it is sent; `hold` keeps it busy until the test opens the gate."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.stopped = threading.Event()

    def on_receive(self, message: Any) -> Any:
        return message()

    def hold(self) -> str:
        self.entered.set()
        assert self.opened.wait(PATIENCE)
        return "held"

    def on_stop(self) -> None:
        self.stopped.set()


class Theirs(pykka.ThreadingActor):
    """An actor of pykka's own."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Any] = []

    def on_receive(self, message: Any) -> Any:
        self.log.append(message)
        return message
