"""A timeline of what one policy does with a few messages: their arrivals and their batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorflow.lab.models.policies import policy_of
from actorflow.lab.models.service import parse_service
from actorflow.lab.models.traffic import AT, KEY, PRIORITY, SIZE, Given
from actorflow.lab.report.figures import colour, drawn
from actorflow.lab.run.simulate import simulate
from actorflow.runtime.errors import BadOption

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from actorflow.lab.models.service import Service
    from actorflow.lab.models.traffic import Message

__all__ = ["timeline"]

_MOST = 60  # messages: more cannot be distinguished
_LOST = "#c9c9c9"


class _RecordedService:
    """A service that remembers what it was given, and how long it took."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.calls: list[tuple[list[Message], float]] = []

    def seconds(self, batch: Any, random: Random) -> float:
        """Return the time for one batch, as the service within does."""
        took = self._service.seconds(batch, random)
        self.calls.append((list(batch) if isinstance(batch, list) else [batch], took))
        return took


def timeline(  # noqa: C901 - it draws
    messages: Sequence[Message], service: str, policy: Any, *, label: str = "number"
) -> Figure:
    """Draw the arrivals of some messages, and the batches that a policy makes of them.

    A message that does not leave (replaced, merged, dropped, expired) is grey; an item that only
    fills up a batch is a ring.

    Args:
        messages: at most 60.
        service: how long a call takes, as text.
        policy: what to run, as text, class or factory.
        label: the text on a message: its `number`, `key` or `priority`.

    """
    if not 0 < len(messages) <= _MOST:
        msg = f"{len(messages)} messages: a timeline shows 1 to {_MOST} of them"
        raise BadOption(msg)
    watched = _RecordedService(parse_service(service))
    chosen = policy_of(policy)
    # One more comes long after, so that the end of the run does not let the last ones go early.
    end = messages[-1][AT]
    late = (None, 0, 1.0, 10 * end + 1000.0)
    result = simulate(Given([*messages, late]), watched, chosen)
    starts = [at for at, _ in result.batch_series]
    calls = [
        (start, *call)
        for start, call in zip(starts, watched.calls, strict=True)
        if late not in call[0]
    ]
    numbers = {message[AT]: number for number, message in enumerate(messages, 1)}
    tones = {key: at for at, key in enumerate(dict.fromkeys(m[KEY] for m in messages))}
    left = {message[AT] for _, batch, _ in calls for message in batch}
    largest = max((len(batch) for _, batch, _ in calls), default=1)
    end = max([end, *(start + took for start, _, took in calls)]) * 1000

    def name(message: Message) -> str:
        if label == "priority":
            return f"{message[PRIORITY]:g}"
        if label == "key":
            return (f"{message[SIZE]:g}" if message[SIZE] > 1 else "") + str(message[KEY])
        return str(numbers[message[AT]])

    def dot(axes: Axes, at: float, height: float, message: Message, *, lost: bool) -> None:
        if message[KEY] not in tones:  # it fills up a batch
            axes.scatter(at, height, s=95, facecolors="white", edgecolors=_LOST, zorder=3)
            return
        face = _LOST if lost else colour(tones[message[KEY]])
        axes.scatter(at, height, s=105, color=face, zorder=3, linewidths=0)
        text = name(message)
        axes.text(
            at, height, text, ha="center", va="center_baseline", zorder=4, color="white",
            fontsize=7 if len(text) < 3 else 5.5, fontweight="bold",  # noqa: PLR2004
        )  # fmt: skip

    def draw(axes: Axes) -> None:
        for message in messages:
            dot(axes, message[AT] * 1000, 1.0, message, lost=message[AT] not in left)
        for start, batch, took in calls:
            begin, middle = start * 1000, (start + took / 2) * 1000
            axes.add_patch(
                _box(begin, -0.6 - (largest - 1) * 0.85, took * 1000, largest * 0.85 + 0.1)
            )
            for place, message in enumerate(batch):
                dot(axes, middle, -0.18 - place * 0.85, message, lost=False)
        axes.set_xlim(-end * 0.02, end * 1.02)
        axes.set_ylim(-0.75 - (largest - 1) * 0.85, 1.6)
        axes.set_yticks([1.0, -0.18], ["arrive", "batches"])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
        axes.axhline(0.42, color="#dddddd", linewidth=0.8)
        axes.spines["left"].set_visible(False)
        axes.set(xlabel="time, ms")
        axes.set_title(chosen.name, fontsize=10)

    return drawn(draw, (7.4, 1.15 + 0.19 * largest))


def _box(x: float, y: float, width: float, height: float) -> Any:
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - an extra, and slow to import

    return Rectangle((x, y), width, height, facecolor="#eef2f6", edgecolor="#9fb3c8", linewidth=0.8)
