"""Keep one object per customer, with its own state and one writer: millions of them cost little.

Restate calls them *virtual objects*, Orleans *grains*, Cloudflare *durable objects*.
"""

import sys

import actorflow as af

Cart = dict[str, int]


def change(batch: list[dict[str, int]], cart: Cart, *, key: str) -> af.Answers:
    """Apply all changes that have arrived; answer each with the state of the cart."""
    answers = []
    for goods in batch:
        for name, number in goods.items():
            cart = {**cart, name: cart.get(name, 0) + number}
        answers.append(f"{key}: {sum(cart.values())} things")
    return af.Answers(cart, answers)


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        carts = engine.workers("cart/{id}", change, state={})
        visits: list[tuple[str, Cart]] = [
            ("ann", {"tea": 2}),
            ("bob", {"cake": 1}),
            ("ann", {"tea": 1, "cups": 4}),
            ("ann", {"cups": -1}),
        ]
        for number, (customer, goods) in enumerate(visits):
            engine.send(f"cart/{customer}", goods, key=f"visit-{number}")  # the key: only once
        print(carts["ann"].ask({}, timeout=20), carts["bob"].ask({}, timeout=20), sep="; ")


if __name__ == "__main__":
    main(*sys.argv[1:])
