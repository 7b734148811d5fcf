"""The rules that `check_behaviour` holds a behaviour to."""

from __future__ import annotations

__all__ = ["RULES", "Broken"]

RULES = {
    "length": "len() is the number of messages held: accepted, not handed over, not displaced",
    "refusal": "a message that add refuses leaves the behaviour as it was",
    "once": "each accepted message is handed over at most once, and nothing else is",
    "progress": "as long as len() > 0, take hands something over (after ready_at, where timed)",
    "hands off": "a batch that was handed over is not touched again",
    "limit": "take(limit) hands over at most that many messages",
    "peek": "peek returns the first message of the next batch, and takes nothing",
    "oldest": "drop_oldest forgets the message that has waited longest, and returns it",
    "grows": "grows(message) says whether add makes it longer, and changes nothing",
    "extend": "extend does what add does for one message after the other",
    "extend_at": "extend_at does what ready_at and add do for one message after the other",
    "first_stamped": "with Traits(first_stamped=True), only the first arrival of a batch matters; "
    "set stamped if each of them does",
    "stamped": "the times of arrival do not matter, unless Traits has stamped or first_stamped",
    "time": "ready_at returns a time, the same one when asked again",
    "due": "at the time that ready_at has returned, a batch may leave if nothing came meanwhile",
    "iter": "__iter__, where there is one, lists the messages held",
    "until_full": "fewer messages than until_full() do not make a batch leave earlier",
    "patient": "with Traits(patient=True), until_full() is None",
    "reason": "reason() returns a Reason",
    "accepts_all": "with Traits(accepts_all=True), no message is refused",
    "tickets": "each ticket leaves exactly once: with its message, or reported in gone",
    "check": "its own check() passes",
    "errors": "only add may raise, to refuse a message",
}


class Broken(Exception):
    """A rule does not hold."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(what)
        self.rule = rule
