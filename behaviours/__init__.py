"""How messages accumulate while an executor is busy, and what leaves as one batch."""

from behaviours.base import (
    Base,
    Behaviour,
    Fate,
    Item,
    Reason,
    Refusal,
    Tally,
    Traits,
    adapt,
    claim,
    unwrap,
)
from behaviours.bounded import Bounded
from behaviours.chunk import Chunk
from behaviours.errors import (
    ActorflowError,
    AlreadyUsed,
    BadBehaviour,
    Displaced,
    Dropped,
    Expired,
    Full,
    Malformed,
    Rejected,
    Replaced,
    WouldBlock,
)
from behaviours.keys.coalesce import Coalesce
from behaviours.keys.table import TableUnique
from behaviours.keys.unique import Unique
from behaviours.order.fair import Fair
from behaviours.order.line import Queue, Stack
from behaviours.order.priority import Priority
from behaviours.timing.adaptive import Adaptive
from behaviours.timing.debounce import Debounce
from behaviours.timing.expire import Expire
from behaviours.timing.linger import Linger
from behaviours.timing.throttle import Throttle

__actorflow__ = True  # tells this package from others of its name

__all__ = [
    "ActorflowError",
    "Adaptive",
    "AlreadyUsed",
    "BadBehaviour",
    "Base",
    "Behaviour",
    "Bounded",
    "Chunk",
    "Coalesce",
    "Debounce",
    "Displaced",
    "Dropped",
    "Expire",
    "Expired",
    "Fair",
    "Fate",
    "Full",
    "Item",
    "Linger",
    "Malformed",
    "Priority",
    "Queue",
    "Reason",
    "Refusal",
    "Rejected",
    "Replaced",
    "Stack",
    "TableUnique",
    "Tally",
    "Throttle",
    "Traits",
    "Unique",
    "WouldBlock",
    "adapt",
    "claim",
    "unwrap",
]
