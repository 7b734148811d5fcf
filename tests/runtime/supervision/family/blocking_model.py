"""A naive model of OTP's supervisor, written from its rules alone.

It is a blocking program with a mailbox, as the original is: it knows nothing of plans, steps or
indexes, and looks for everything in a list. A `World` decides the outcome of each start and how
each child ends when it is stopped.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from actorflow.runtime.exits import Crash, ExitReason, GaveUp, Killed, Normal, Shutdown

WITHIN = 5.0
REASONS: list[ExitReason] = [
    Normal(),
    Shutdown(),
    Shutdown("detail"),
    Killed(),
    Crash(ValueError("boom")),
]
FAILURE = Crash(OSError("refused"))


class World:
    """What happens outside: how starts turn out, how children end, which ref comes next."""

    def __init__(self) -> None:
        self.starts: defaultdict[str, list[str]] = defaultdict(list)
        self.endings: dict[str, ExitReason] = {}
        self.births = 0

    def start(self, name: str) -> int | str:
        script = self.starts[name]
        outcome = script.pop(0) if script else "ok"
        if outcome != "ok":
            return outcome
        self.births += 1
        return self.births

    def ending(self, name: str, grace: object) -> ExitReason:
        return self.endings.get(name, Killed() if grace == "brutal_kill" else Shutdown())


# The model


@dataclass
class Kid:
    name: str
    restart: str
    grace: object
    kind: str
    significant: bool
    ref: int | None = None
    status: str = "down"
    dead: ExitReason | None = None
    token: int = 0
    restarts: int = 0
    failures: int = 0
    since: float = 0.0
    last: int | None = None
    """The last incarnation."""
    kept: bool = False
    """Stopped for a restart that includes its own."""
    trouble: ExitReason = FAILURE
    """Why it had to be started again."""


@dataclass
class Rules:
    strategy: str
    limit: int
    auto: str
    backoff: bool
    room: int | None


class PlanAbandonedError(Exception):
    """The plan under way ends here, because the supervisor has to."""


class Model:
    """A naive supervisor."""

    def __init__(self, rules: Rules, kids: list[Kid], template: Kid | None) -> None:
        self.rules = rules
        self.kids = kids
        self.template = template
        self.world = World()
        self.now = 0.0
        self.times: list[float] = []
        self.mailbox: list[tuple[Any, ...]] = []
        self.trace: list[object] = []
        self.logs: list[tuple[str, str]] = []
        self.answers: dict[int, tuple[object, ...]] = {}
        self.retries: list[tuple[float, str, int]] = []
        self.tokens = 0
        self.ready = False
        self.ending: tuple[object, str] | None = None
        self.leaving = False
        self.gone = False
        self.arrivals: dict[int, list[tuple[Any, ...]]] = {}
        self.steps = 0
        self.released: set[int] = set()

    @property
    def simple(self) -> bool:
        return self.rules.strategy == "dynamic"

    # The mailbox

    def run(self, message: tuple[Any, ...], arrivals: dict[int, list[tuple[Any, ...]]]) -> None:
        self.arrivals, self.steps = arrivals, 0
        self.arrive(message)
        while self.mailbox and self.ending is None:
            what, *details = self.mailbox.pop(0)
            with suppress(PlanAbandonedError):
                getattr(self, f"on_{what}")(*details)
            self.release()
        if self.ending is not None and not self.gone:
            self.finish()

    def arrive(self, message: tuple[Any, ...]) -> None:
        what = message[0]
        if what == "shutdown":
            self.ending = self.ending or (message[1], "REQUESTED")
        elif what == "exit":
            for kid in self.kids:
                if kid.status == "up" and kid.ref == message[1] and kid.dead is None:
                    kid.dead = kid.trouble = message[2]
                    self.mailbox.append(("exit", message[1]))
        elif what == "retry":
            self.mailbox.append(("retry", self.retries.pop(message[1])[2]))
        elif what == "call" and self.ending is not None:
            self.answers[message[1]] = ("refused", "STOPPING")
        else:
            self.mailbox.append(message)

    def release(self) -> None:
        """Note which children are down for good, now that one message has been handled."""
        waiting = any(kid.status == "retry" for kid in self.kids)
        for kid in self.kids:
            if kid.status == "down" and kid.last is not None and not (kid.kept and waiting):
                self.released.add(kid.last)

    def finish(self) -> None:
        for what, *details in self.mailbox:
            if what == "call":
                self.answers[details[0]] = ("refused", "STOPPING")
        self.mailbox = []
        self.leaving = True
        if self.simple:
            for kid in list(self.kids):
                if kid.status != "up" or kid.dead is not None:
                    self.stop(kid)
            self.stop_together()
        else:
            for kid in reversed(list(self.kids)):
                self.stop(kid)
        self.gone = True

    def step(self) -> None:
        for message in self.arrivals.get(self.steps, []):
            self.arrive(message)
        self.steps += 1

    # Starting and stopping one child

    def start(self, kid: Kid, *, quiet: bool = False) -> tuple[object, ...]:
        if self.ending is not None:
            raise PlanAbandonedError
        outcome = self.world.start(kid.name)
        kid.status = "starting"
        self.trace.append(("start", kid.name, outcome))
        self.step()
        if isinstance(outcome, int):
            kid.ref, kid.status, kid.dead, kid.since = outcome, "up", None, self.now
            kid.last, kid.kept = outcome, False
            self.logs.append(("PROGRESS", kid.name))
            return ("started", outcome)
        if outcome == "ignore":
            self.drop(kid)
            return ("ignored",)
        kid.trouble = FAILURE
        if not quiet:
            self.logs.append(("START_ERROR", kid.name))
        return ("refused", "START_FAILED")

    def stop(self, kid: Kid, *, kept: bool = False) -> None:
        kid.kept = kept
        if kid.status == "up" and kid.dead is None:
            if self.ending is not None and not self.leaving:
                raise PlanAbandonedError
            self.trace.append(("stop", [kid.ref]))
            kid.status = "stopping"
            self.step()
            kid.dead = kid.trouble = self.world.ending(kid.name, kid.grace)
        if kid.dead is not None:
            self.judge(kid)
        self.drop(kid)

    def stop_together(self) -> None:
        alive = list(self.kids)
        if alive:
            self.trace.append(("stop", sorted(kid.ref or 0 for kid in alive)))
            for kid in alive:
                kid.status = "stopping"
            self.step()
            # Children with the same grace are asked to stop together, so they answer together.
            graces = [kid.grace for kid in alive]
            for kid in sorted(alive, key=lambda kid: graces.index(kid.grace)):
                kid.dead = self.world.ending(kid.name, kid.grace)
                self.judge(kid)
                self.drop(kid)

    def judge(self, kid: Kid) -> None:
        fine = kid.dead == (Killed() if kid.grace == "brutal_kill" else Shutdown())
        if kid.restart != "permanent" and isinstance(kid.dead, Normal | Shutdown):
            fine = True
        if not fine:
            self.logs.append(("SHUTDOWN_ERROR", kid.name))

    def drop(self, kid: Kid) -> None:
        kid.status, kid.ref, kid.dead = "down", None, None
        if self.simple or kid.restart == "temporary":
            self.remove(kid)

    def remove(self, kid: Kid) -> None:
        self.kids.remove(kid)
        if kid.last is not None:
            self.released.add(kid.last)

    # Messages

    def on_begin(self) -> None:
        for kid in list(self.kids):
            if self.start(kid)[0] == "refused":
                self.drop(kid)
                self.ending = self.ending or (kid.name, "START_FAILED")
                return
        self.ready = self.ending is None

    def on_exit(self, ref: int) -> None:
        kid = next((kid for kid in self.kids if kid.ref == ref and kid.dead is not None), None)
        if kid is None:
            return
        clean = isinstance(kid.dead, Normal | Shutdown)
        if kid.restart == "permanent" or (kid.restart == "transient" and not clean):
            self.logs.append(("CHILD_TERMINATED", kid.name))
            if self.rules.backoff:
                if self.now - kid.since > WITHIN:
                    kid.failures = 0
                kid.status, kid.dead = "retry", None
                self.again(kid)
            else:
                self.attempt(kid)
            return
        if not clean:
            self.logs.append(("CHILD_TERMINATED", kid.name))
        self.drop(kid)
        others = [other for other in self.kids if other.significant and other.status != "down"]
        if kid.significant and (
            self.rules.auto == "any_significant"
            or (self.rules.auto == "all_significant" and not others)
        ):
            self.ending = (Shutdown(), "AUTO_SHUTDOWN")

    def on_retry(self, token: int) -> None:
        for kid in list(self.kids):
            if kid.status == "retry" and kid.token == token:
                self.attempt(kid)

    def attempt(self, kid: Kid) -> None:
        recent = [time for time in self.times if self.now - time <= WITHIN]
        if len(recent) + 1 > self.rules.limit:
            self.logs.append(("TOO_MANY_RESTARTS", kid.name))
            gave_up = GaveUp(
                child=kid.name,
                reason=kid.trouble,
                restarts=len(recent) + 1,
                max_restarts=self.rules.limit,
                within=WITHIN,
            )
            self.drop(kid)
            self.ending = (Shutdown(gave_up), "TOO_MANY_RESTARTS")
            return
        self.times.append(self.now)
        lot = self.lot(kid)
        if self.rules.strategy in {"one_for_all", "rest_for_one"}:
            kid.status, kid.ref, kid.dead = "down", None, None
            for each in reversed(lot):
                self.stop(each, kept=True)
            lot = [each for each in lot if each.restart != "temporary"]
        for each in lot:
            each.restarts += 1
            if self.start(each)[0] == "refused":
                each.status, each.dead = "retry", None
                self.again(each)
                return

    def again(self, kid: Kid) -> None:
        delay = 0.0
        if self.rules.backoff:
            delay = min(8.0, 2.0**kid.failures)
            for other in reversed(self.lot(kid)):
                if other is not kid:
                    self.stop(other, kept=True)
        kid.failures += 1
        self.tokens += 1
        kid.token = self.tokens
        if self.ending is None:
            self.retries.append((delay, kid.name, kid.token))

    def lot(self, kid: Kid) -> list[Kid]:
        if self.rules.strategy == "one_for_all":
            return list(self.kids)
        if self.rules.strategy == "rest_for_one":
            return self.kids[self.kids.index(kid) :]
        return [kid]

    # Calls

    def on_call(self, caller: int, name: str, argument: Any) -> None:
        self.answers[caller] = getattr(self, name)(argument)

    def start_child(self, kid: Kid) -> tuple[object, ...]:
        if self.simple and self.template is not None:
            return ("refused", "TEMPLATE")
        known = [other for other in self.kids if other.name == kid.name]
        if known and not self.simple:
            if known[0].status == "up":
                return ("refused", "ALREADY_STARTED", known[0].ref)
            return ("refused", "ALREADY_PRESENT")
        return self.enter(kid)

    def start_copy(self, _argument: None) -> tuple[object, ...]:
        if self.template is None:
            return ("refused", "NO_TEMPLATE")
        return self.enter(Kid(**vars(self.template)))

    def enter(self, kid: Kid) -> tuple[object, ...]:
        if self.rules.room is not None and len(self.kids) >= self.rules.room:
            return ("refused", "MAX_CHILDREN")
        self.kids.append(kid)
        answer = self.start(kid, quiet=True)
        if answer[0] == "refused":
            self.kids.remove(kid)
        return answer

    def terminate_child(self, name: str) -> tuple[object, ...]:
        if self.simple:
            return ("refused", "DYNAMIC")
        for kid in self.kids:
            if kid.name == name:
                kid.failures = 0
                self.stop(kid)
                return ("done",)
        return ("refused", "NOT_FOUND")

    def terminate_ref(self, ref: int) -> tuple[object, ...]:
        if not self.simple:
            return ("refused", "NOT_DYNAMIC")
        for kid in self.kids:
            if kid.ref == ref:
                self.stop(kid)
                return ("done",)
        return ("refused", "NOT_FOUND")

    def restart_child(self, name: str) -> tuple[object, ...]:
        kid = self.stopped(name)
        if isinstance(kid, str):
            return ("refused", kid)
        kid.failures = 0
        answer = self.start(kid, quiet=True)
        if answer[0] == "refused":
            kid.status = "down"
        return answer

    def delete_child(self, name: str) -> tuple[object, ...]:
        kid = self.stopped(name)
        if isinstance(kid, str):
            return ("refused", kid)
        self.remove(kid)
        return ("done",)

    def stopped(self, name: str) -> Kid | str:
        if self.simple:
            return "DYNAMIC"
        for kid in self.kids:
            if kid.name == name:
                return {"up": "RUNNING", "retry": "RESTARTING"}.get(kid.status, kid)
        return "NOT_FOUND"
