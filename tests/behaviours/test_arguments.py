"""One set of validators for the whole project: the same words, whatever the error."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan
from typing import Any

import pytest

from actorflow.behaviours import BadBehaviour
from actorflow.behaviours.arguments import (
    choice,
    count,
    flag,
    function,
    key_function,
    number,
    seconds,
    shown,
)

EXAMPLE = "spawn(job, wait=1)"


class BadOption(Exception):
    """An error of another layer."""


class Shy:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise SystemExit


NO_NUMBERS = [True, False, nan, "1", None, 1j, [1], b"1", object(), Shy()]


@pytest.mark.parametrize("bad", NO_NUMBERS, ids=lambda bad: type(bad).__name__)
@pytest.mark.parametrize("validate", [seconds, count, number])
def test_what_is_no_number_is_refused_everywhere(validate: Any, bad: Any) -> None:
    with pytest.raises(BadBehaviour) as caught:
        validate(bad, "wait", EXAMPLE)
    with pytest.raises(BadOption) as other:
        validate(bad, "wait", EXAMPLE, error=BadOption)
    assert str(caught.value) == str(other.value)
    assert str(caught.value).startswith("wait=")
    assert str(caught.value).endswith(f", as in {EXAMPLE}")


@pytest.mark.parametrize(
    ("value", "options", "words"),
    [
        (-1, {}, "a finite number of seconds, zero or more"),
        (0, {"zero": False}, "a finite number of seconds, positive"),
        (inf, {}, "a finite number of seconds, zero or more"),
        (-1, {"infinite": True}, "a number of seconds, zero or more"),
        (10**400, {}, "a finite number of seconds, zero or more"),
    ],
)
def test_seconds(value: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadBehaviour, match=f"wait must be {words}, as in"):
        seconds(value, "wait", EXAMPLE, **options)
    assert seconds(Fraction(1, 2), "wait", EXAMPLE) == 0.5
    assert seconds(0, "wait", EXAMPLE) == 0.0
    assert seconds(inf, "wait", EXAMPLE, infinite=True) == inf


@pytest.mark.parametrize(
    ("value", "options", "words"),
    [
        (0, {}, "a whole number, 1 or more"),
        (-1, {"least": 0}, "a whole number, 0 or more"),
        (1.0, {}, "a whole number, 1 or more"),
        (11, {"most": 10}, "a whole number, from 1 to 10"),
    ],
)
def test_count(value: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadBehaviour, match=f"size={value}: size must be {words}, as in"):
        count(value, "size", EXAMPLE, **options)
    assert count(0, "size", EXAMPLE, least=0) == 0


@pytest.mark.parametrize(
    ("value", "options", "words"),
    [
        (0, {"above": 0}, "a finite number, positive"),
        (1, {"above": 1}, "a finite number, more than 1"),
        (0.5, {"least": 1}, "a finite number, 1 or more"),
        (2, {"least": 0, "most": 1}, "a finite number, 0 or more, at most 1"),
        (inf, {}, "a finite number"),
    ],
)
def test_number(value: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadBehaviour, match=f"factor must be {words}, as in"):
        number(value, "factor", EXAMPLE, **options)
    assert number(-3, "factor", EXAMPLE) == -3


def test_words_functions_and_flags() -> None:
    with pytest.raises(BadOption, match="mode='drian': mode must be one of 'drain', 'now'; did"):
        choice("drian", "mode", ("drain", "now"), error=BadOption)
    with pytest.raises(BadOption, match=r"mode=<Shy whose repr\(\) raised SystemExit>: mode must"):
        choice(Shy(), "mode", ("drain", "now"), error=BadOption)
    with pytest.raises(BadOption, match="job=1: job must be a function, as in"):
        function(1, "job", EXAMPLE, error=BadOption)
    with pytest.raises(BadOption, match=r"key=1\.5: key must be a function of the message"):
        key_function(1.5, EXAMPLE, error=BadOption)
    with pytest.raises(BadOption, match="significant=1: significant must be True or False"):
        flag(1, "significant", EXAMPLE, error=BadOption)
    assert flag(value=False, name="significant", example=EXAMPLE) is False


def test_functions_are_shown_by_name() -> None:
    assert shown(len) == "len"
    assert shown(3) == "3"
    assert "Shy" in shown(Shy())
