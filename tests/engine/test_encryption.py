"""Encryption at rest."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.errors import StoreRefused
from actorflow.engine.stores.encoded import EncodedStore
from actorflow.engine.stores.memory import MemoryStore
from actorflow.testing.stores.check import check_store
from tests.engine.kinds import PATIENCE, until

if TYPE_CHECKING:
    from pathlib import Path

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
CARD = "4000-1234-5678-9010"


class Failure(Exception):
    """An error that tells a secret."""


@af.task
def charge(card: str) -> str:
    assert card == CARD
    return f"charged {card}"


@af.task
def fail(card: str) -> None:
    raise Failure(card)


class Order(af.Workflow[str]):
    def __init__(self, card: str) -> None:
        self.card = card

    def handle(self) -> str:
        charged = self.execute(charge(self.card))
        self.wait("go on")
        try:
            self.execute(fail(self.card), raises=True)
        except af.StepFailed as error:
            return f"{charged} {error.error['message']}"
        return "never"


def note(batch: list[str], state: list[str]) -> list[str]:
    if "bad" in batch[0]:
        raise Failure(batch[0])
    return [*state, *batch]


def contents(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.iterdir() if each.is_file())


@pytest.mark.parametrize("size", [16, 24, 32])
def test_the_file_does_not_show_the_secret(tmp_path: Path, size: int) -> None:
    codec = af.Encrypted(KEY[:size])
    with af.Engine(tmp_path / "s.db", codec=codec) as engine:
        order = engine.start(Order(CARD), id="o-1")
        notes = engine.worker("notes", note, state=[])
        notes.push_block(CARD)
        notes.push(f"bad {CARD}")
        until(engine, lambda: notes.statistics().dead_letters == 1)
        assert CARD.encode() not in contents(tmp_path)
        order.send("go on", card=CARD)
        assert order.result(PATIENCE) == f"charged {CARD} {CARD}"
        assert CARD.encode() not in contents(tmp_path)
    assert CARD.encode() not in contents(tmp_path)
    with af.Engine(tmp_path / "s.db", codec=codec) as engine:
        notes = engine.worker("notes", note, state=[])
        assert notes.state() == [CARD]
        (letter,) = notes.dead_letters
        assert letter.message == f"bad {CARD}"
        assert CARD in letter.error
        assert engine.result("o-1") == f"charged {CARD} {CARD}"


def test_without_the_codec_the_secret_is_there(tmp_path: Path) -> None:
    with af.Engine(tmp_path / "s.db") as engine:
        engine.worker("notes", note, state=[]).push_block(CARD)
    assert CARD.encode() in contents(tmp_path)


def test_a_workflow_goes_on_after_a_restart(tmp_path: Path) -> None:
    codec = af.Encrypted(KEY)
    with af.Engine(tmp_path / "s.db", codec=codec) as engine:
        order = engine.start(Order(CARD), id="o-1")
        until(engine, lambda: engine.statistics().tasks_done == 1)
    with af.Engine(tmp_path / "s.db", codec=codec) as engine:
        order = engine.start(Order(CARD), id="o-1")
        order.send("go on")
        assert order.result(PATIENCE) == f"charged {CARD} {CARD}"


def test_keys_can_be_rotated(tmp_path: Path) -> None:
    with af.Engine(tmp_path / "s.db", codec=af.Encrypted(KEY)) as engine:
        engine.worker("notes", note, state=[]).push_block("a")
    with af.Engine(tmp_path / "s.db", codec=af.Encrypted(OTHER, old_keys=[KEY])) as engine:
        notes = engine.worker("notes", note, state=[])
        assert notes.state() == ["a"]
        notes.push_block("b")
    with af.Engine(tmp_path / "s.db", codec=af.Encrypted(OTHER)) as engine:
        assert engine.worker("notes", note, state=[]).state() == ["a", "b"]


def test_a_wrong_key_and_no_key_are_named(tmp_path: Path) -> None:
    with af.Engine(tmp_path / "s.db", codec=af.Encrypted(KEY)) as engine:
        engine.worker("notes", note, state=[]).push_block("a")
    with pytest.raises(af.WrongKey, match="another key"):
        af.Engine(tmp_path / "s.db", codec=af.Encrypted(OTHER))
    with pytest.raises(af.BadOption, match="is encrypted"):
        af.Engine(tmp_path / "s.db")


def test_a_store_with_plain_data_is_refused(tmp_path: Path) -> None:
    with af.Engine(tmp_path / "s.db") as engine:
        engine.worker("notes", note, state=[]).push_block("a")
    with pytest.raises(af.BadOption, match="has plain data"):
        af.Engine(tmp_path / "s.db", codec=af.Encrypted(KEY))


@pytest.mark.parametrize("key", [b"", b"short", "text" * 8, bytes(33)])
def test_keys_of_wrong_lengths_are_refused(key: Any) -> None:
    with pytest.raises(af.BadOption, match=r"os\.urandom"):
        af.Encrypted(key)


def test_changed_data_are_noticed() -> None:
    codec = af.Encrypted(KEY)
    data = bytearray(codec.encode(b"secret"))
    data[-1] ^= 1
    with pytest.raises(af.WrongKey, match="changed"):
        codec.decode(bytes(data))


def test_a_codec_needs_both_directions() -> None:
    with pytest.raises(af.BadOption, match="has no encode"):
        af.Engine(codec=object())  # type: ignore[arg-type]


def test_an_encoded_store_keeps_the_promises_of_a_store() -> None:
    check_store(lambda: EncodedStore(MemoryStore(), af.Encrypted(KEY)), max_examples=20)


def test_threads_share_a_codec(tmp_path: Path) -> None:
    with af.Engine(tmp_path / "s.db", durability="off", codec=af.Encrypted(KEY)) as engine:
        notes = engine.workers("notes/{id}", note, state=[])
        threads = [
            threading.Thread(target=notes[number].push_block, args=("a",)) for number in range(8)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join(PATIENCE)
        assert [notes[number].state() for number in range(8)] == [["a"]] * 8


class Unreadable(MemoryStore):
    """A store that cannot be read at first, and outlives its engines."""

    failures = 0

    def close(self) -> None:
        pass

    def listing(self, **wanted: Any) -> Any:
        if self.failures:
            self.failures -= 1
            raise StoreRefused("the store cannot be read")
        return super().listing(**wanted)


def test_an_encrypted_store_that_cannot_be_read_at_first_is_checked_before_anything_runs() -> None:
    store = Unreadable()
    with af.Engine(store, codec=af.Encrypted(KEY)) as engine:
        engine.worker("notes", note, state=[]).push_block("a")
    store.failures = 1
    with af.Engine(store) as engine, pytest.raises(af.BadOption, match=r"af\.Encrypted\(key\)"):
        engine.resume()
    with af.Engine(store, codec=af.Encrypted(KEY)) as engine:
        assert engine.worker("notes", note, state=[]).state() == ["a"]


def test_an_event_that_is_sent_again_after_the_end_is_known_by_its_id(tmp_path: Path) -> None:
    with af.Engine(tmp_path / "s.db", codec=af.Encrypted(KEY)) as engine:
        order = engine.start(Order(CARD), id="o-1")
        order.send("go on", id="e-1")
        assert order.result(timeout=PATIENCE) == f"charged {CARD} {CARD}"
        order.send("go on", id="e-1")
