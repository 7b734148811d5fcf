"""The ring of workers, as a pure state machine: events in, actions out, time as a parameter.

It decides which member owns which partitions. It reads no clock, opens no socket and writes to no
store: `actorflow.cluster.membership` passes events to it and carries out the actions it returns.
"""

from actorflow.cluster.ring.events import (
    Action,
    Drain,
    Drained,
    Event,
    Fenced,
    Hint,
    Hinted,
    Lose,
    Own,
    Register,
    Registered,
    RingStep,
    Sweep,
)
from actorflow.cluster.ring.journal import (
    KEPT_EPOCHS,
    EpochJournal,
    JournalEntry,
    journal_problems,
)
from actorflow.cluster.ring.leases import desired_owners
from actorflow.cluster.ring.member import Member
from actorflow.cluster.ring.options import RingOptions
from actorflow.cluster.ring.register import CheckIn, Holding, MemberEntry, Roll, View, check_in

__all__ = [
    "KEPT_EPOCHS",
    "Action",
    "CheckIn",
    "Drain",
    "Drained",
    "EpochJournal",
    "Event",
    "Fenced",
    "Hint",
    "Hinted",
    "Holding",
    "JournalEntry",
    "Lose",
    "Member",
    "MemberEntry",
    "Own",
    "Register",
    "Registered",
    "RingOptions",
    "RingStep",
    "Roll",
    "Sweep",
    "View",
    "check_in",
    "desired_owners",
    "journal_problems",
]
