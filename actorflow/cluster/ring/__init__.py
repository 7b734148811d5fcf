"""The ring of workers, as a pure state machine: events in, actions out, time as a parameter.

The same `Member` runs in simulation, by the thousands of histories, and in production. It reads no
clock, opens no socket and writes to no store: a shell passes events to it and carries out the
actions that it returns.
"""

from actorflow.cluster.ring.actions import (
    Action,
    Bury,
    Drain,
    Left,
    Lose,
    Own,
    Perform,
    Process,
    Register,
    Send,
    Step,
    Sweep,
)
from actorflow.cluster.ring.assignment import desired_owners, share_of
from actorflow.cluster.ring.clockwork import clock_offsets, clock_rank
from actorflow.cluster.ring.events import (
    Committed,
    Drained,
    Event,
    Fenced,
    Leave,
    Processed,
    Received,
    Registered,
    SendFailed,
    Verdict,
)
from actorflow.cluster.ring.member import Member, Status
from actorflow.cluster.ring.messages import (
    AskMap,
    Cycle,
    HandedOver,
    Payload,
    Post,
    TaskNote,
    Tracker,
    TrackerMap,
    Work,
)
from actorflow.cluster.ring.options import RingOptions
from actorflow.cluster.ring.register import CheckIn, Holding, Roll, Seat, View, check_in

__all__ = [
    "Action",
    "AskMap",
    "Bury",
    "CheckIn",
    "Committed",
    "Cycle",
    "Drain",
    "Drained",
    "Event",
    "Fenced",
    "HandedOver",
    "Holding",
    "Leave",
    "Left",
    "Lose",
    "Member",
    "Own",
    "Payload",
    "Perform",
    "Post",
    "Process",
    "Processed",
    "Received",
    "Register",
    "Registered",
    "RingOptions",
    "Roll",
    "Seat",
    "Send",
    "SendFailed",
    "Status",
    "Step",
    "Sweep",
    "TaskNote",
    "Tracker",
    "TrackerMap",
    "Verdict",
    "View",
    "Work",
    "check_in",
    "clock_offsets",
    "clock_rank",
    "desired_owners",
    "share_of",
]
