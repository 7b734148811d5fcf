"""How messages accumulate while an executor is busy, and what leaves as one batch."""

from behaviours.adaptive import Adaptive
from behaviours.base import (
    Base,
    Behaviour,
    Fate,
    Item,
    Refusal,
    Tally,
    Traits,
    adapt,
    claim,
    unwrap,
)
from behaviours.bounded import Bounded
from behaviours.chunk import Chunk
from behaviours.coalesce import Coalesce
from behaviours.debounce import Debounce
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
from behaviours.expire import Expire
from behaviours.fair import Fair
from behaviours.linger import Linger
from behaviours.priority import Priority
from behaviours.queue import Queue
from behaviours.stack import Stack
from behaviours.table import TableUnique
from behaviours.throttle import Throttle
from behaviours.unique import Unique

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
