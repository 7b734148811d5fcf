"""Move money between two banks: retry network errors, give up on wrong accounts, and refund.

Temporal calls it *money transfer*, Restate *payments with idempotency keys*.
"""

import sys

import actorflow as af


class InvalidAccount(Exception):
    """There is no such account; another attempt is no use."""


POLICY = af.Backoff(initial=0.05, factor=2.0, maximum=60.0)


@af.task(retries=100, backoff=POLICY, attempt_timeout=10)
def withdraw(account: str, amount: int) -> str:
    """Take the money; the bank ignores a second request with the same key."""
    return f"key {af.current_task().id}: -{amount} from {account}"


@af.task(retries=100, backoff=POLICY, attempt_timeout=10, give_up_on=(InvalidAccount,))
def deposit(account: str, amount: int) -> str:
    """Give the money. The first attempt fails, as networks do."""
    if af.current_task().attempt == 1:
        raise ConnectionError("the bank does not answer")
    if account == "closed":
        raise InvalidAccount(account)
    return f"+{amount} to {account}"


class Transfer(af.Workflow[str]):
    """Moves an amount, or leaves it where it was."""

    def __init__(self, source: str, target: str, amount: int) -> None:
        self.source, self.target, self.amount = source, target, amount

    def handle(self) -> str:
        """Return the outcome."""
        self.execute(withdraw(self.source, self.amount))
        try:
            return self.execute(deposit(self.target, self.amount), raises=True)
        except af.StepFailed as failed:
            refund = self.execute(deposit(self.source, self.amount))
            return f"{failed.error['name']}, {refund}"


def main(store: str = ":memory:") -> None:
    """Run it; with the path of a file, it goes on where it was when it is run again."""
    with af.Engine(store) as engine:
        good = engine.start(Transfer("ann", "bob", 40), id="transfer-1")
        bad = engine.start(Transfer("ann", "closed", 40), id="transfer-2")
        print(f"{good.result(timeout=20)}; {bad.result(timeout=20)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
