"""Wait until a condition on the state holds, whatever makes it hold.

Temporal calls it *wait condition*, Restate *promises*.
"""

import sys

import actorflow as af


class Lobby(af.Workflow[str], keep_events=()):
    """Starts a game when enough players are there, or when the time is up."""

    def __init__(self, needed: int) -> None:
        self.needed = needed
        self.players: list[str] = []

    def handle(self) -> str:
        """Return who plays."""
        if not self.until(lambda: len(self.players) >= self.needed, minutes=5):
            return "too few players"
        return f"{' against '.join(sorted(self.players))}"

    def on_event(self, event: af.Event) -> int:
        """Let a player in or out; answer how many are missing."""
        name = event.data["name"]
        if event.name == "join":
            self.players.append(name)
        elif name in self.players:
            self.players.remove(name)
        return max(0, self.needed - len(self.players))


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        lobby = engine.start(Lobby(needed=3), id="lobby")
        print("missing:", lobby.ask("join", name="ann", id="1", timeout=20))
        lobby.send("join", name="bob", id="2")
        lobby.send("leave", name="bob", id="3")
        for player in ("cid", "dan"):
            lobby.send("join", name=player, id=player)
        print(lobby.result(timeout=20))


if __name__ == "__main__":
    main(*sys.argv[1:])
