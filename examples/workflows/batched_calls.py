"""Let the calls of many workflows share one call of the model or the database.

No peer has it; without workflows, Ray Serve calls it *dynamic batching*.
"""

import sys

import actorflow as af
from actorflow.behaviours import Linger, Queue


@af.task(batch=Linger(Queue(), 0.05, size=64))
def embed(texts: list[str]) -> list[int]:
    """Return one answer for each text, in one call for up to 64 workflows."""
    print("one call for", len(texts))
    return [len(text) for text in texts]


class Document(af.Workflow[int]):
    """Embeds one text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def handle(self) -> int:
        """Return the embedding of the text."""
        return self.execute(embed(self.text))


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        documents = [engine.start(Document("x" * size), id=f"d-{size}") for size in range(40)]
        print("sum:", sum(document.result(timeout=20) for document in documents))


if __name__ == "__main__":
    main(*sys.argv[1:])
