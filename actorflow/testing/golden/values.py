"""Makes recorded values and ours comparable: removes the parts that may differ."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from actorflow.flows.errors import ERROR_NAMES, NotFound

Json = Any

FLOW_ERRORS = ERROR_NAMES - {NotFound.__name__}
"""Our classes that were recorded as `RECORDED_FLOW_ERROR`; NotFound was a KeyError."""
RECORDED_FLOW_ERROR = "Flor::FlorError"
_WITH_FILE = 4
"""Length of a tree with a file name."""


@dataclass(frozen=True)
class FlowDifference:
    """Where a flow first differs from its golden data."""

    where: str
    expected: Json
    found: Json

    def __str__(self) -> str:
        return f"{self.where}: expected {short(self.expected)}, found {short(self.found)}"


def short(value: Json) -> str:
    """Return a value as JSON, cut to 300 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 300 else f"{text[:297]}..."  # noqa: PLR2004


def plain_tree(tree: Json) -> Json:
    """Return a tree without file names."""
    if type(tree) is list and len(tree) >= 3 and type(tree[0]) is str:  # noqa: PLR2004
        children = [plain_tree(child) for child in tree[1]] if type(tree[1]) is list else tree[1]
        return [tree[0], children, tree[2]]
    return tree


def comparable_error(error: Json) -> Json:
    """Return the parts of an error that are compared: its class, and the text if a flow made it."""
    if error.get("kla") == RECORDED_FLOW_ERROR or error.get("kla") in FLOW_ERRORS:
        return {"kla": "FlowError", "msg": error.get("msg")}
    return {"kla": "other"}


def comparable(value: Json) -> Json:
    """Return a value with comparable errors, without times and file names."""
    if type(value) is dict:
        if "kla" in value and "msg" in value:
            return comparable_error(value)
        if set(value) >= {"cause", "m", "nid"} and type(value["cause"]) is str:
            return {key: value.get(key) for key in ("cause", "m", "sm", "nid", "type")}
        return {
            key: comparable(one)
            for key, one in value.items()
            if key not in ("virtual", "trc", "timer")
        }
    if type(value) is list:
        if len(value) == _WITH_FILE and type(value[2]) is int and type(value[3]) is str:
            value = value[:3]
        return [comparable(one) for one in value]
    return value


def subset(expected: Json, found: Json) -> Json:
    """Return only those entries of an object that are expected."""
    if type(expected) is dict and type(found) is dict:
        return {key: subset(expected[key], found[key]) for key in expected if key in found}
    return found


def same_errors(expected: Json, found: Json) -> tuple[Json, Json]:
    """Return the comparable parts of two errors."""
    left, right = comparable_error(expected), comparable_error(found or {})
    if left["kla"] == "other":
        return {}, {}
    if "lin" in expected:
        left["lin"], right["lin"] = expected["lin"], (found or {}).get("lin")
    if "prc" in expected:
        left["prc"], right["prc"] = expected["prc"], (found or {}).get("prc")
    return left, right


def loosen(expected: Json, found: Json) -> Json:
    """Return ``found`` with the texts of foreign errors replaced by the expected ones."""
    if type(expected) is dict and type(found) is dict:
        if "kla" in expected and "kla" in found and expected.get("kla") == "other":
            return expected
        return {key: loosen(expected.get(key), one) for key, one in found.items()}
    if type(expected) is list and type(found) is list and len(expected) == len(found):
        return [loosen(a, b) for a, b in zip(expected, found, strict=True)]
    return found
