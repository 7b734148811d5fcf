"""Take messages one by one, in order, and do something slow with each.

Temporal calls it *signals in order*, DBOS *recv*, Erlang a *mailbox*.
"""

import sys

import actorflow as af


@af.task
def post(number: int, text: str) -> str:
    """Post one message. The next one waits until this is done."""
    return f"{number} {text}"


class Postman(af.Workflow[str]):
    """Delivers letters until the bag is closed."""

    def __init__(self) -> None:
        self.delivered: list[str] = []

    def handle(self) -> str:
        """Return the delivered letters."""
        while (letter := self.receive("letter")).data["text"] != "end":
            number = len(self.delivered) + 1
            self.delivered.append(self.execute(post(number, letter.data["text"])))
        return ", ".join(self.delivered)


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        postman = engine.start(Postman(), id="postman")
        for text in ("hello", "how are you", "bye", "end"):
            postman.send("letter", text=text, id=f"letter-{text}")  # the id: never twice
        print(postman.result(timeout=20))


if __name__ == "__main__":
    main(*sys.argv[1:])
