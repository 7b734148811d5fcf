"""Forms from JSON schemas, and back: the type of each field is in its name.

A field is named `TYPE:PATH`, for example `boolean:approved`; the path of a single value is empty.
What a schema does not describe is a field for JSON. The engine checks the result.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["fields", "json_of", "value_of"]

_PLAIN = ("boolean", "integer", "number", "string")


def fields(schema: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the fields for a value.

    >>> [(each["name"], each["label"]) for each in fields({"type": "boolean"})]
    [('boolean:', 'Result')]
    >>> fields({})[0]["name"], fields(None)[0]["name"]
    ('json:', 'json:')
    """
    definitions = (schema or {}).get("$defs", {})
    found = _resolved(schema or {}, definitions)
    if found.get("type") != "object" or not found.get("properties"):
        return [_field("", "Result", found, required=True)]
    required = found.get("required", [])
    return [
        _field(name, name, _resolved(each, definitions), required=name in required)
        for name, each in found["properties"].items()
    ]


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without references; of an optional value, the schema of the value."""
    found = dict(schema)
    while "$ref" in found:
        found = dict(definitions.get(str(found["$ref"]).rpartition("/")[2], {}))
    options = [each for each in found.get("anyOf", ()) if each.get("type") != "null"]
    if len(options) == 1:
        return _resolved(options[0], definitions)
    return found


def _field(path: str, label: str, schema: Mapping[str, Any], *, required: bool) -> dict[str, Any]:
    choices = schema.get("enum")
    kind = "choice" if choices else schema.get("type")
    kind = kind if kind in (*_PLAIN, "choice") else "json"
    return {
        "name": f"{kind}:{path}",
        "label": label,
        "type": kind,
        "required": required,
        "choices": [(json.dumps(each), str(each)) for each in choices or ()],
        "help": schema.get("description", ""),
    }


def value_of(form: Mapping[str, str]) -> Any:
    """Return the value that a form holds.

    >>> value_of({"task": "t-1", "boolean:approved": "true", "string:note": "fine"})
    {'approved': True, 'note': 'fine'}
    >>> value_of({"integer:": "7"})
    7
    """
    values = {
        name.partition(":")[2]: _value(name.partition(":")[0], text)
        for name, text in form.items()
        if ":" in name and (text or name.startswith("string:") or name.endswith(":"))
    }
    return values.get("", values)


def _value(kind: str, text: str) -> Any:
    if kind == "string":
        return text
    if kind in ("boolean", "choice", "json"):
        return json_of(text)
    try:
        return int(text) if kind == "integer" else float(text)
    except ValueError:
        msg = f"{text!r:.80} is not a number"
        raise ValueError(msg) from None


def json_of(text: str) -> Any:
    """Return the value that a field for JSON holds; `None` for an empty one.

    Raises:
        ValueError: it is not JSON.

    """
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{text!r:.80} is not JSON ({error}): texts need quotes"
        raise ValueError(msg) from None
