"""How much an instance costs that has been through much."""

from __future__ import annotations

from typing import TYPE_CHECKING

import actorflow as af
from tests.workflows.service.orders import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COUNT = 400


class Chat(af.Workflow[int]):
    """Appends each message to a list, as in docs/workflows/inbox.md."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def handle(self) -> int:
        """Return how many messages there were."""
        self.wait("end")
        return len(self.messages)

    def on_event(self, event: af.Event) -> int:
        """Append one."""
        if event.name == "say":
            self.messages.append(event.data["text"])
        return len(self.messages)


def test_the_file_grows_with_the_messages_and_not_with_their_square(
    tmp_path: Path, opens: Callable[..., af.Engine]
) -> None:
    path = tmp_path / "chat.db"
    with opens(path, durability="off") as engine:
        engine.start(Chat(), id="chat").query()
    before = path.stat().st_size
    with opens(path, durability="off") as engine:
        chat = engine.workflows.get(Chat, "chat")
        for number in range(COUNT):
            assert chat.ask("say", text=f"{number:04}".ljust(1_000, ".")) == number + 1
    assert path.stat().st_size - before < 2_000_000
    with opens(path, durability="off") as engine:
        chat = engine.workflows.get(Chat, "chat")
        assert [each[:4] for each in chat.query().properties["messages"]] == [
            f"{number:04}" for number in range(COUNT)
        ]
        chat.send("end")
        assert chat.result(PATIENCE) == COUNT
