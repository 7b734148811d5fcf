"""How messages accumulate while an executor is busy, and what leaves as one batch.

Import from `actorflow.behaviours`. In a checkout `actorflow/behaviours` is a symbolic link to this
folder; in an installation the folder is inside `actorflow/`, where no other project can overwrite
it. This one file is installed a second time, as the package `behaviours`, so that
`from behaviours import Queue` finds the same objects unless another project owns that name.
"""

from actorflow.behaviours.adapt import Base, adapt, claim
from actorflow.behaviours.behaviour import (
    Behaviour,
    Fate,
    Item,
    Judge,
    MessageOutcome,
    Reason,
    Refusal,
    Tally,
    Traits,
    Verdict,
    unwrap,
)
from actorflow.behaviours.bounded import Bounded
from actorflow.behaviours.chunk import Chunk
from actorflow.behaviours.errors import (
    ActorflowError,
    AlreadyUsed,
    BadBehaviour,
    Displaced,
    Dropped,
    Duplicate,
    Expired,
    Full,
    Malformed,
    Rejected,
    Replaced,
    TooLarge,
    WouldBlock,
)
from actorflow.behaviours.keys.bucket import Bucket
from actorflow.behaviours.keys.coalesce import Coalesce
from actorflow.behaviours.keys.dedup import Dedup
from actorflow.behaviours.keys.per_key import PerKey
from actorflow.behaviours.keys.table import TableUnique
from actorflow.behaviours.keys.unique import Unique
from actorflow.behaviours.order.fair import Fair
from actorflow.behaviours.order.lanes import Lanes
from actorflow.behaviours.order.lifo import Lifo
from actorflow.behaviours.order.line import Queue, Stack
from actorflow.behaviours.order.priority import Priority
from actorflow.behaviours.order.sample import Sample
from actorflow.behaviours.order.shortest import Shortest
from actorflow.behaviours.pad_to import PadTo
from actorflow.behaviours.preempt import Preempt
from actorflow.behaviours.timing.adaptive import Adaptive
from actorflow.behaviours.timing.codel import CoDel
from actorflow.behaviours.timing.deadline import Deadline
from actorflow.behaviours.timing.debounce import Debounce
from actorflow.behaviours.timing.expire import Expire
from actorflow.behaviours.timing.linger import Linger
from actorflow.behaviours.timing.rate import Rate
from actorflow.behaviours.timing.throttle import Throttle
from actorflow.behaviours.timing.window import Window

if __name__ == "behaviours":
    __path__.clear()  # `import behaviours.order` would create its classes a second time

__all__ = [
    "ActorflowError",
    "Adaptive",
    "AlreadyUsed",
    "BadBehaviour",
    "Base",
    "Behaviour",
    "Bounded",
    "Bucket",
    "Chunk",
    "CoDel",
    "Coalesce",
    "Deadline",
    "Debounce",
    "Dedup",
    "Displaced",
    "Dropped",
    "Duplicate",
    "Expire",
    "Expired",
    "Fair",
    "Fate",
    "Full",
    "Item",
    "Judge",
    "Lanes",
    "Lifo",
    "Linger",
    "Malformed",
    "MessageOutcome",
    "PadTo",
    "PerKey",
    "Preempt",
    "Priority",
    "Queue",
    "Rate",
    "Reason",
    "Refusal",
    "Rejected",
    "Replaced",
    "Sample",
    "Shortest",
    "Stack",
    "TableUnique",
    "Tally",
    "Throttle",
    "TooLarge",
    "Traits",
    "Unique",
    "Verdict",
    "Window",
    "WouldBlock",
    "adapt",
    "claim",
    "unwrap",
]
