"""The checker behind `check_behaviour`: the rules, and a sequence of steps that must keep them."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import partial
from itertools import accumulate
from math import isclose, isfinite, isnan
from typing import TYPE_CHECKING, Any

from actorflow.behaviours.adapt import Foreign, adapt
from actorflow.behaviours.behaviour import (
    Behaviour,
    Fate,
    Item,
    MessageOutcome,
    Reason,
    unwrap,
)
from actorflow.behaviours.errors import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["BehaviourChecker", "RuleBroken"]

RULES = {
    "length": "len() is the number of messages held: accepted, not handed over, not displaced",
    "refusal": "a message that add refuses leaves the behaviour as it was",
    "once": "each accepted message is handed over at most once, and nothing else is",
    "progress": "as long as len() > 0, take hands something over (after ready_at, where timed)",
    "hands off": "a batch that was handed over is not touched again",
    "limit": "take(limit) hands over at most that many messages",
    "portion": "a batch has at most portion() messages",
    "padding": "padding() is the number of items at the end of a batch that are not messages",
    "withdraw": "withdraw(message) forgets that message and returns whether it was still held",
    "save": "a new behaviour that loads what save has returned saves the same, as JSON holds it",
    "peek": "peek returns the first message of the next batch, and takes nothing",
    "oldest": "drop_oldest forgets the message that has waited longest, and returns it",
    "grows": "grows(message) says whether add makes it longer, and changes nothing",
    "accepts": "accepts(message) is false only for a message that add refuses, and changes nothing",
    "extend": "extend does what add does for one message after the other",
    "extend_at": "extend_at does what ready_at and add do for one message after the other",
    "first_stamped": "with Traits(first_stamped=True), only the first arrival of a batch matters; "
    "set stamped if each of them does",
    "stamped": "the times of arrival do not matter, unless Traits has stamped or first_stamped",
    "time": "ready_at returns a time, the same one when asked again",
    "due": "at the time that ready_at has returned, a batch may leave if nothing came meanwhile",
    "ready": "once a batch may leave, it may leave at any later time if nothing came meanwhile",
    "timed": "with Traits(timed=False), ready_at returns a time that is not in the future",
    "iter": "__iter__, where there is one, lists the messages held",
    "until_full": "fewer messages than until_full() do not make a batch leave earlier",
    "patient": "with Traits(patient=True), until_full() is None",
    "reason": "reason() returns a Reason",
    "accepts_all": "with Traits(accepts_all=True), no message is refused",
    "tickets": "each ticket leaves exactly once: with its message, or reported in gone",
    "check": "its own check() passes",
    "errors": "only add may raise, to refuse a message",
}


_ADDRESS = re.compile(r"<(?:[\w<>]+\.)*(\w+) object at 0x[0-9a-fA-F]+>")


class RuleBroken(Exception):
    """A rule does not hold."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(what)
        self.rule = rule


class BehaviourChecker:
    """Performs steps, keeps count, and records the steps as code."""

    def __init__(
        self,
        factory: Callable[[], Any],
        *,
        unpack: Callable[[Any], Iterable[Any]] | None,
        displaces: bool,
        serial: bool,
    ) -> None:
        self.factory = factory
        self.name = getattr(factory, "__name__", repr(factory))
        if not self.name.isidentifier():
            self.name = "factory"
        self.behaviour = adapt(factory)
        self.traits = self.behaviour.traits
        # A class without a repr of its own is shown as a call, so that the code can run.
        self.shown = _ADDRESS.sub(r"\1()", repr(self.behaviour))  # before the steps
        # Its twin gets the same messages one by one, each with its time of arrival.
        own = type(self.behaviour).extend is not Behaviour.extend
        self.twin = adapt(factory) if own or self.traits.timed else None
        self.stamps = "stamped"
        if self.traits.stamped or self.traits.first_stamped:
            self.stamps = "extend_at" if self.traits.stamped else "first_stamped"
        self.may_be_early = False
        self.wait: tuple[float, int | None] | None = None
        self.since = 0
        self.unpack = unpack or _messages
        self.displaces = displaces
        self.serial: int | None = 0 if serial else None
        self.now = 0.0
        self.offered = self.accepted = self.handed = self.shed = 0
        self.refusal = ""
        self.outstanding: list[Any] = []
        self.past: list[Any] = []
        self.batches: list[tuple[list[Any], list[Any]]] = []
        self.tickets: dict[str, int] = {}
        self.gone: list[tuple[Item, Fate]] | None = None
        self.twin_gone: list[tuple[Item, Fate]] = []
        self.code: list[str] = []
        self.last: Any = None
        self.twin_last: Any = None

    def report(self, broken: RuleBroken) -> str:
        """Return which rule is broken, how, and by which steps."""
        shown = self.shown if self.name == "factory" else self.name
        lines = [
            f"{shown} breaks the rule {broken.rule!r}: {RULES[broken.rule]}.",
            f"What happened: {broken}",
            "",
            *(["import json", ""] if any("json." in line for line in self.code) else ()),
            f"from actorflow.behaviours import {', '.join(self._imports())}",
            "",
            f"behaviour = {self._made()}",
            *self.code,
        ]
        return "\n".join(lines)

    def _imports(self) -> list[str]:
        observed = any("MessageOutcome" in line for line in self.code)
        return ["Item", *(["MessageOutcome"] if observed else ()), "adapt"]

    def _made(self) -> str:
        """Return the code that makes the behaviour."""
        if self.name != "factory":
            return f"adapt({self.name})"
        return f"adapt({self.shown})"

    def go(self, steps: Sequence[tuple[str, Any]]) -> None:
        """Perform all steps, then drain."""
        self._audit()
        if self.traits.timed:
            self._tell()
        for name, argument in steps:
            if name in ("take", "peek", "drop_oldest") and not len(self.behaviour):
                continue
            getattr(self, f"_{name}")(argument)
            self._audit()
            if not self.traits.timed:
                self._expect_no_wait()
        self._drain()

    # --- the steps -------------------------------------------------------------------------------

    def _add(self, drawn: Any, ticket: str | None = None) -> None:
        message = self._message(drawn)
        item = message if ticket is None else Item(message, (ticket,))
        self.last = self.twin_last = None
        shown = repr(message) if ticket is None else f"Item({message!r}, ({ticket!r},))"
        if self.traits.shrinks:
            self.code.append(f"behaviour.grows({shown})")
            expected = self._ask(lambda: self.behaviour.grows(item))
            self._audit("grows")
        self.code.append(f"behaviour.accepts({shown})")
        usable = self._ask(lambda: self.behaviour.accepts(item))
        self._audit("accepts")
        self.code[-1] = f"behaviour.add({shown})"
        before, displaced = len(self.behaviour), self._displaced()
        refused = _refused(self.behaviour, item)
        what = f"it said {usable}, and add accepted the message"
        self._require("accepts", usable or refused is not None, what)
        if refused is not None:
            self._note_refusal(message, refused)
            self.code[-1] += f"  # raises {type(refused).__name__}"
            self._require("refusal", len(self.behaviour) == before, "len() changed")
        else:
            self._accept(message, ticket)
            self.last = item
            if self.traits.shrinks and displaced == self._displaced():
                grew = len(self.behaviour) > before
                what = f"grows said {expected}, and len() went {before} -> {len(self.behaviour)}"
                self._require("grows", grew == expected, what)
        if self.twin is not None:
            twin_item = message if ticket is None else Item(message, (ticket,))
            twin_refused = _refused(self.twin, twin_item)
            self.twin_last = twin_item
            same = type(refused) is type(twin_refused)
            what = f"{brief(refused)}, but {brief(twin_refused)} when added singly"
            self._require("extend", same, what)
        self._look_again(1)

    def _add_ticket(self, drawn: Any) -> None:
        if self.gone is None:
            gone = self.gone = []
            self.code += ["gone = []", "behaviour.track(gone)"]
            self._ask(lambda: self.behaviour.track(gone))
            if self.twin is not None:
                self.twin.track(self.twin_gone)
        self._add(drawn, f"ticket {len(self.tickets)}")

    def _extend(self, drawn: list[Any]) -> None:
        messages = [self._message(one) for one in drawn]
        self.code.append(f"behaviour.extend({messages!r})")
        refusals = self._ask(lambda: self.behaviour.extend(list(messages)))
        self._accept_most(messages, refusals, "extend")
        if self.twin is not None:
            singly = [message for message in messages if _refused(self.twin, message) is not None]
            self._compare_refusals(refusals, singly, "extend")
        self._look_again(len(messages))

    def _arrive(self, drawn: list[tuple[Any, float]]) -> None:
        """Add messages that arrive one after the other, as a driver does that looks later."""
        if not drawn:
            return
        messages = [self._message(one) for one, _ in drawn]
        times = list(accumulate((by for _, by in drawn), initial=self.now))[1:]
        self.now = times[-1]
        if self.traits.stamped:
            self.code.append(f"behaviour.extend_at({messages!r}, {times!r})")
            refusals = self._ask(lambda: self.behaviour.extend_at(list(messages), list(times)))
        else:
            if self.traits.first_stamped:
                self.code.append(f"behaviour.ready_at({times[0]!r})")
                self._ask(lambda: self.behaviour.ready_at(times[0]))
            self.code.append(f"behaviour.extend({messages!r})")
            refusals = self._ask(lambda: self.behaviour.extend(list(messages)))
        self._accept_most(messages, refusals, self.stamps)
        if self.twin is not None:
            singly = []
            for message, now in zip(messages, times, strict=True):
                self.twin.ready_at(now)
                if _refused(self.twin, message) is not None:
                    singly.append(message)
            self._compare_refusals(refusals, singly, self.stamps)
            # A driver that keeps only the first stamp may keep the stamp of a refused message.
            self.may_be_early |= self.stamps == "first_stamped" and bool(singly)
        self.wait = None
        self._tell()

    def _take(self, limit: int | None) -> None:
        if self.traits.timed:
            self._tell()
        self.wait = None
        self.code.append(f"behaviour.take({'' if limit is None else limit})")
        portion = self._ask(self.behaviour.portion)
        payload = self._ask(lambda: self._take_from(self.behaviour, limit))
        self.code[-1] += f"  # {payload!r}"
        items = self._without_fill(self.behaviour, payload)
        if limit is not None:
            self._require("limit", len(items) <= limit, f"{len(items)} messages")
        if portion is not None:
            what = f"{len(items)} messages, and portion() was {portion}"
            self._require("portion", len(items) <= portion, what)
        ends = list(_endings(self.handed, len(items)))
        if items and self.traits.observes:
            batch = [unwrap(one) for one in items]
            for outcomes in ends:
                names = ", ".join(f"MessageOutcome.{one.name}" for one in outcomes)
                self.code.append(f"behaviour.done({batch!r}, 0.5, [{names}])")
                self._ask(partial(self.behaviour.done, batch, 0.5, outcomes))
        self._hand_over(items)
        reason = self._ask(self.behaviour.reason)
        self._require("reason", isinstance(reason, Reason), f"it returned {brief(reason)}")
        if isinstance(payload, list):
            self.batches.append((payload, list(payload)))
        if self.twin is not None:
            other = self._take_from(self.twin, limit)
            theirs = self._without_fill(self.twin, other)
            same = [unwrap(one) for one in items] == [unwrap(one) for one in theirs]
            self._require("extend", same, f"{theirs!r} when messages were added singly")
            if theirs and self.traits.observes:
                for outcomes in ends:
                    self.twin.done([unwrap(one) for one in theirs], 0.5, outcomes)

    def _without_fill(self, behaviour: Behaviour, payload: Any) -> list[Any]:
        """Return the messages of a batch, without the items that fill it up."""
        items = [payload] if type(payload) is Item else list(self.unpack(payload))
        if not self.traits.pads:
            return items
        fill = self._ask(behaviour.padding)
        right = type(fill) is int and 0 <= fill <= len(items)
        self._require("padding", right, f"{fill!r} of {len(items)} items")
        return items[: len(items) - fill]

    def _take_from(self, behaviour: Behaviour, limit: int | None) -> Any:
        if self.traits.timed and behaviour is self.twin:
            behaviour.ready_at(self.now)
        if self.traits.spreads:
            return behaviour.take(limit, free=1 + self.handed % _EXECUTORS)
        return behaviour.take() if limit is None else behaviour.take(limit)

    def _peek(self, _: None) -> None:
        if self.traits.timed:
            self._tell()
        self.code.append("behaviour.peek()")
        if self.twin is not None:
            with suppress(IndexError):
                self.twin.peek()
        try:
            first = self.behaviour.peek()
            self.code[-1] += f"  # {first!r}"
        except IndexError:
            if self.traits.expires or self.traits.may_be_empty:
                return
            raise RuleBroken("peek", "IndexError although len() > 0") from None
        self._audit("peek")
        before = self.handed
        self._take(1)
        if self.handed > before:
            same = unwrap(first) == self.past[-1]
            self._require("peek", same, f"peek returned {first!r}, take {self.past[-1]!r}")

    def _drop_oldest(self, _: None) -> None:
        self.wait = None
        before = len(self.behaviour)
        self.code.append("behaviour.drop_oldest()")
        item = self._ask(self.behaviour.drop_oldest)
        self.code[-1] += f"  # {item!r}"
        message = unwrap(item)
        shrank = before - len(self.behaviour)
        self._require("oldest", shrank == 1, f"len() fell by {shrank}, not by one")
        if not (self.traits.shrinks or self.displaces) and self._displaced() == 0:
            oldest = self.outstanding[0]
            what = f"it returned {message!r}, and {oldest!r} came first"
            self._require("oldest", message == oldest, what)
        known = _remove(self.outstanding, message)
        what = f"it returned {message!r}, which it did not hold"
        self._require("oldest", known or self._merges(), what)
        self.shed += 1
        self._see_tickets(item)
        if self.twin is not None:
            self.twin.drop_oldest()

    def _pass(self, by: float) -> None:
        may_leave = len(self.behaviour) and self._tell() <= self.now
        held, before = len(self.behaviour), self.now
        self.now += by
        ready = self._tell()
        if may_leave and held == len(self.behaviour) and not self.traits.may_be_empty:
            what = f"it was ready at {before}, and at {self.now} it is ready at {ready}"
            self._require("ready", ready <= self.now, what)

    def _expect_no_wait(self) -> None:
        """Check that what does not declare that it waits does not wait."""
        if len(self.behaviour):
            ready = self._ask(lambda: self.behaviour.ready_at(self.now))
            what = f"ready_at({self.now}) is {ready}"
            self._require("timed", ready <= self.now, what)

    # --- keeping count ---------------------------------------------------------------------------

    def _message(self, drawn: Any) -> Any:
        if self.serial is None:
            return drawn
        self.serial += 1
        return (drawn, self.serial)

    def _accept_most(self, messages: list[Any], refusals: Any, rule: str) -> None:
        """Count messages as accepted, except for the refused ones."""
        refused = [(message, error) for some, error in refusals for message in some]
        for message, error in refused:
            self._note_refusal(message, error)
        left = [message for message, _ in refused]
        for message in messages:
            if not _remove(left, message):
                self._accept(message, None)
        self._require(rule, not left, f"it refuses {left!r}, which it was not passed")

    def _compare_refusals(self, refusals: Any, singly: list[Any], rule: str) -> None:
        together = [message for some, _ in refusals for message in some]
        what = f"it refuses {together!r}, and {singly!r} when added singly"
        self._require(rule, _same(singly, together), what)

    def _note_refusal(self, message: Any, error: Exception) -> None:
        self.offered += 1
        self.refusal = f"{brief(message)}: {brief(error)}"
        self._require("accepts_all", not self.traits.accepts_all, f"it refused {self.refusal}")

    def _accept(self, message: Any, ticket: str | None) -> None:
        self.offered += 1
        self.accepted += 1
        self.outstanding.append(message)
        if ticket is not None:
            self.tickets[ticket] = 0

    def _hand_over(self, items: list[Any]) -> None:
        for item in items:
            message = unwrap(item)
            self.handed += 1
            if not _remove(self.outstanding, message) and not self._merges():
                again = any(message == one for one in self.past)
                what = "was handed over before" if again else "was never accepted"
                raise RuleBroken("once", f"{message!r} {what}")
            self.past.append(message)
            self._see_tickets(item)

    def _see_tickets(self, item: Any) -> None:
        if type(item) is Item:
            for ticket in item.tickets:
                self._see(ticket)

    def _see(self, ticket: str) -> None:
        self.tickets[ticket] = self.tickets.get(ticket, 0) + 1
        self._require("tickets", self.tickets[ticket] == 1, f"{ticket!r} left twice")

    def _displaced(self) -> int:
        tally = self.behaviour.tally()
        # What disappears in an object that keeps no counts is dropped by mistake, or `displaces`.
        dropped = 0 if isinstance(self.behaviour, Foreign) else tally.dropped
        return tally.replaced + dropped + tally.expired + tally.merged

    def _merges(self) -> bool:
        return self.displaces or self.behaviour.tally().merged > 0

    def _audit(self, rule: str = "length") -> None:
        """Compare the counts with the behaviour's visible effects."""
        self._ask(self.behaviour.check, "check")
        held = self._ask(self.behaviour.__len__)
        left = self.accepted - self.handed - self.shed - self._displaced()
        right = held <= left if self.displaces else held == left
        what = f"len() is {held}, and {left} messages were accepted and are not accounted for"
        self._require(rule, right, what)
        driven = self.behaviour
        if isinstance(driven, Foreign) and driven.lists:
            listed = len(self._ask(lambda: list(driven)))
            self._require("iter", listed == held, f"it lists {listed}, and len() is {held}")
        for payload, copy in self.batches:
            self._require("hands off", payload == copy, f"{copy!r} became {payload!r}")
        if self.gone:
            for item, _ in self.gone:
                self._see_tickets(item)
            self.gone.clear()
        if self.twin is not None:
            what = f"len() is {held}, and {len(self.twin)} when messages are added singly"
            self._require("extend", len(self.twin) == held, what)

    def _tell(self) -> float:
        """Pass the current time in, and return from when on a batch may leave."""
        ready = self._ask(lambda: self.behaviour.ready_at(self.now))
        self.code.append(f"behaviour.ready_at({self.now})  # {ready}")
        self._require("time", not isnan(ready), "it is NaN")
        again = self._ask(lambda: self.behaviour.ready_at(self.now))
        same = again == ready or max(again, ready) <= self.now
        self._require("time", same, f"first {ready}, then {again}")
        if self.twin is not None:
            theirs = self.twin.ready_at(self.now)
            same = ready == theirs or max(ready, theirs) <= self.now
            early = self.may_be_early and ready <= theirs
            what = f"it is ready at {ready}, and at {theirs} when each arrival has its time"
            self._require(self.stamps, same or early, what)
        self._check_wait(ready)
        return float(ready)

    def _withdraw(self, drawn: Any) -> None:
        """Add a message, with a ticket if it can have one, and withdraw it: it must not leave."""
        before, known = len(self.behaviour), set(self.tickets)
        if self.traits.trackable:
            self._add_ticket(drawn)
        else:
            self._add(drawn)
        ticket = next((one for one in self.tickets if one not in known), None)
        if self.last is None:
            return
        self.code.append("behaviour.withdraw(item)  # the one that was added last")
        held = len(self.behaviour)
        found = self._ask(lambda: self.behaviour.withdraw(self.last))
        if self.twin is not None and self.twin_last is not None:
            self.twin.withdraw(self.twin_last)
        shrank = held - len(self.behaviour)
        what = f"it returned {found}, and len() fell by {shrank} (it was {before} before)"
        self._require("withdraw", shrank == bool(found), what)
        if found:
            self.shed += 1
            _remove(self.outstanding, unwrap(self.last))
            if ticket is not None:
                self._see(ticket)
            again = self._ask(lambda: self.behaviour.withdraw(self.last))
            self._require("withdraw", not again, "it was withdrawn twice")

    def _save(self, _: None) -> None:
        """Let a new behaviour load what this one has saved."""
        self.code.append("state = json.loads(json.dumps(behaviour.save()))")
        state = self._ask(lambda: json.loads(json.dumps(self.behaviour.save())), "save")
        other = adapt(self.factory)
        self.code.append(f"other = {self._made()}")
        self.code.append("other.load(state)")
        if state is None:
            self.code[-2:] = []
            return
        self._ask(lambda: other.load(state), "save")
        if self.traits.timed:
            self.code.append(f"other.ready_at({self.now})")
            self._ask(lambda: other.ready_at(self.now))
        again = self._ask(lambda: json.loads(json.dumps(other.save())), "save")
        self._require("save", _alike(state, again), f"saved {state!r}, and then {again!r}")

    def _look_again(self, messages: int) -> None:
        """Check whether that many messages changed when the next batch leaves."""
        if self.wait is not None:
            self.since += messages
            self._tell()

    def _check_wait(self, ready: float) -> None:
        """Compare the answer of `until_full` with the messages added since then."""
        if self.wait is not None:
            due, full = self.wait
            fewer = full is None or self.since < full
            if fewer and self.now < due:
                what = (
                    f"it had to wait until {due}, and until_full() was {full}; after {self.since} "
                    f"messages it may leave at {ready}"
                )
                self._require("until_full", ready >= due, what)
        self.wait = None
        if ready > self.now and len(self.behaviour):
            full = self._ask(self.behaviour.until_full)
            right = full is None or (type(full) is int and full >= 1)
            self._require("until_full", right, f"it is {full!r}, not None or 1 or more")
            agrees = full is None or not self.traits.patient
            self._require("patient", agrees, f"until_full() is {full!r}")
            self.wait, self.since = (ready, full), 0

    def _drain(self) -> None:
        """Take until nothing is left: everything must come out."""
        self.wait = None
        self._ask(self.behaviour.flush)
        if self.twin is not None:
            self.twin.flush()
        self._audit()
        while len(self.behaviour):
            if self.traits.timed:
                ready = self._tell()
                self._require("progress", isfinite(ready), f"it is ready at {ready}, that is never")
                self.now = max(self.now, ready)
                later = self._tell()
                if later > self.now and not self.traits.may_be_empty:
                    again = self.behaviour.ready_at(later)
                    moves = f"it is always later: {ready}, then {later}, then {again}"
                    self._require("due", again <= later, moves)
                what = f"it was ready at {ready}, and then at {later}"
                self._require("due", later <= self.now, what)
            before = (self.handed, self._displaced(), len(self.behaviour))
            self._take(None)
            after = (self.handed, self._displaced(), len(self.behaviour))
            what = "take handed nothing over, and the messages are still there"
            self._require("progress", before != after, what)
            self._audit()
        for ticket, seen in self.tickets.items():
            self._require("tickets", seen == 1, f"{ticket!r} never left")

    def _ask(self, call: Callable[[], Any], rule: str = "errors") -> Any:
        try:
            return call()
        except RuleBroken:
            raise
        except Exception as error:
            raise RuleBroken(rule, brief(error)) from error

    def _require(self, rule: str, holds: bool, what: str) -> None:  # noqa: FBT001 - a fact
        if not holds:
            raise RuleBroken(rule, what)


_EXECUTORS = 3
_OUTCOMES = (
    MessageOutcome.PROCESSED,
    MessageOutcome.PROCESSED,
    MessageOutcome.FAILED,
    MessageOutcome.PROCESSED,
    MessageOutcome.ABANDONED,
)
_RETRIED = 3
"""Each so manieth call is retried once."""


def _endings(before: int, size: int) -> Iterator[list[MessageOutcome]]:
    """Return the outcomes that are reported of a batch, one list for each call of the job."""
    if before % _RETRIED == 1:
        yield [MessageOutcome.RETRIED] * size
    yield [_OUTCOMES[(before + at) % len(_OUTCOMES)] for at in range(size)]


def _alike(some: Any, other: Any) -> bool:
    """Return whether two states are the same, but for the rounding of numbers."""
    if isinstance(some, float) or isinstance(other, float):
        numbers = isinstance(some, int | float) and isinstance(other, int | float)
        return numbers and isclose(some, other, rel_tol=1e-9, abs_tol=1e-6)
    if isinstance(some, list) and isinstance(other, list):
        return len(some) == len(other) and all(map(_alike, some, other))
    if isinstance(some, dict) and isinstance(other, dict):
        return some.keys() == other.keys() and all(_alike(some[key], other[key]) for key in some)
    return bool(some == other)


def _messages(payload: Any) -> list[Any]:
    return payload if isinstance(payload, list) else [payload]


def _refused(behaviour: Behaviour, item: Any) -> Exception | None:
    try:
        behaviour.add(item)
    except Exception as error:  # noqa: BLE001 - the contract allows any
        return error
    return None


def _remove(messages: list[Any], message: Any) -> bool:
    """Remove one equal message; messages need not be hashable."""
    for at, other in enumerate(messages):
        if other is message or other == message:
            del messages[at]
            return True
    return False


def _same(some: list[Any], others: list[Any]) -> bool:
    """Return whether two lists hold the same messages, in any order."""
    rest = list(others)
    return len(some) == len(others) and all(_remove(rest, message) for message in some)
