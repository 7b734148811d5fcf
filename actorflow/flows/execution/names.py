"""Names: what a word or a path refers to at a given node, for reading and writing.

A variable is looked up in the node, in its closure node, in its parent, and so on; after the root
come the procedures, the variables of the domain, and the taskers. A missing field is null, a
missing variable is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from actorflow.flows.errors import FlowError, LimitExceeded, NotFound
from actorflow.flows.execution.node import ROOT
from actorflow.flows.values.paths import (
    del_path,
    get_key,
    get_path,
    is_index,
    is_many,
    path_text,
    set_path,
)
from actorflow.flows.values.regexes import to_regex
from actorflow.flows.values.values import (
    MISSING,
    Value,
    dup_function,
    is_regex,
    kind_name,
    to_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actorflow.flows.execution.node import Node, Payload
    from actorflow.flows.execution.run import FlowRun

_SPACES = {
    **dict.fromkeys(("f", "fld", "field"), "f"),
    **dict.fromkeys(("t", "tag"), "t"),
    **{f"{p}{word}": f"{p}v" for p in ("", "l", "g", "d") for word in ("v", "var", "variable")},
    "node": "node",
    **dict.fromkeys(("exe", "execution"), "exe"),
}
_ARGUMENT_LISTS = frozenset(("args", "argv", "arga"))
_ARGUMENT_DICTS = frozenset(("argh", "argd"))


# -- variables -------------------------------------------------------------------------------


def scopes(nodes: Mapping[str, Node], node: Node | None, name: str | None = None) -> Iterator[Node]:
    """Yield the nodes whose variables are visible from ``node``, nearest first.

    All lookups of variables use this walk. With a ``name``, it ends where the white or black list
    of a node hides that name.
    """
    while node is not None:
        if name is not None and node.own and _cut(node, name):
            return
        if node.vars is not None:
            yield node
        if node.cnid is not None:
            closure = nodes.get(node.cnid)
            if closure is not None and closure.vars is not None:
                yield closure
        node = None if node.parent is None else nodes.get(node.parent)


def _cut(node: Node, name: str) -> bool:
    """Return whether the white or black list of ``node`` hides ``name`` from the nodes below."""
    listed = node.own.get("vlist")
    if listed is None:
        return False
    inside = any(
        to_regex(entry).search(name) if is_regex(entry) else entry == name for entry in listed[1]
    )
    return inside if listed[0] == "-" else not inside


def owner_of(
    run: FlowRun, node: Node | None, name: str, *, despite_lists: bool = False
) -> Node | None:
    """Return the node whose variable ``name`` is visible from ``node``.

    With ``despite_lists``, white and black lists hide nothing; they only apply to reading.
    """
    for scope in scopes(run.nodes, node, None if despite_lists else name):
        if name in scope.vars:  # type: ignore[operator] # a scope has variables
            return scope
    return None


def nearest_scope(run: FlowRun, node: Node) -> Node:
    """Return the nearest node with variables, from ``node`` upwards."""
    found: Node | None = node
    while found is not None:
        if found.vars is not None:
            return found
        if found.parent is None:
            break
        found = run.nodes.get(found.parent)
    return run.nodes[ROOT]


def variable(run: FlowRun, node: Node | None, name: str) -> Value:
    """Return the variable visible from ``node``, whatever else has that name, or ``MISSING``."""
    owner = owner_of(run, node, name)
    if owner is not None and owner.vars is not None:
        return owner.vars[name]
    if name in run.procedures:
        return ["_proc", {"proc": name}, -1]
    value = _call_arguments(run, node, name)
    if value is MISSING:
        value = run.loader.variable(run.domain, name)
    if value is MISSING and run.taskers.knows(run.domain, name):
        return ["_tasker", {"tasker": name}, -1]
    return value


def _call_arguments(run: FlowRun, node: Node | None, name: str) -> Value:
    """Return the arguments of the enclosing call as array or object, if ``name`` refers to them."""
    if name not in _ARGUMENT_LISTS and name not in _ARGUMENT_DICTS:
        return MISSING
    owner = owner_of(run, node, "arguments")
    if owner is None or owner.vars is None:
        return MISSING
    pairs = owner.vars["arguments"]
    if name in _ARGUMENT_LISTS:
        return [value for _, value in pairs]
    return {key: value for key, value in pairs if key is not None}


def visible_variables(nodes: Mapping[str, Node], node: Node | None) -> dict[str, Value]:
    """Return all variables visible from ``node``; the nearest value of each name wins."""
    seen: dict[str, Value] = {}
    for scope in scopes(nodes, node):
        for name, value in (scope.vars or {}).items():
            seen.setdefault(name, value)
    return seen


def _read_variable(run: FlowRun, node: Node, mode: str, path: list[Value]) -> Value:
    name = path[0] if type(path[0]) is str else path_text(path[:1])
    if mode == "g":
        value = (run.nodes[ROOT].vars or {}).get(name, MISSING)
    elif mode == "d":
        value = run.loader.variable(run.domain, name)
    else:
        value = variable(run, node, name)
    if value is MISSING or len(path) == 1:
        return value
    found, followed = get_path(value, path[1:])
    _check_containers(value, path, followed)
    if found is not MISSING:
        return found
    container, _ = get_path(value, path[1 : followed + 1])
    missing = followed if container is None else followed + 1
    if missing < len(path) - 1:
        above = f' at "{path_text(path[:missing])}"' if missing else ""
        raise NotFound(f'variable "{path[missing]}" not found{above}')
    return None


def _check_containers(value: Value, path: list[Value], followed: int) -> None:
    """Raise FlowError if a key of a path was applied to something that cannot have such keys.

    ``value`` is the value at the first key; ``followed`` keys after it were found.
    """
    for depth, key in enumerate(path[1 : followed + 2], 1):
        if type(value) is list and not is_index(key):
            above = path_text(path[:depth])
            raise FlowError(f'no key "{key}" for {kind_name(value)} at "{above}"')
        if type(value) is not dict and type(value) is not list:
            if value is None or value is MISSING:
                return
            above = path_text(path[:depth])
            raise FlowError(f'found no collection at "{above}" for key {to_json(key)}')
        if is_many(key):
            return
        value = get_key(value, key)


def _split(path: list[Value]) -> tuple[str, list[Value]]:
    """Return the namespace of a path and the rest of it.

    Namespaces are f(ield), t(ag), v(ariable), lv, gv, dv, node and exe(cution).
    """
    space = _SPACES.get(path[0]) if len(path) > 1 and type(path[0]) is str else None
    return ("v", path) if space is None else (space, path[1:])


# -- reading ---------------------------------------------------------------------------------


def _read_field(run: FlowRun, node: Node, payload: Payload, path: list[Value]) -> Value:
    if path[0] == "ret":
        parent = None if node.parent is None else run.nodes.get(node.parent)
        entry = node.payload if parent is None else parent.payload
        payload = entry
    value, followed = get_path(payload, path)
    if len(path) > 1 and type(path[0]) is str:
        _check_containers(payload.get(path[0]), path, followed - 1)
    return None if value is MISSING else value


def _read_tag(run: FlowRun, name: Value) -> Value:
    nids = [
        nid
        for nid, node in run.nodes.items()
        if node.tags and name in node.tags and node.state != "ended"
    ]
    return nids or None


def node_data(node: Node) -> dict[str, Any]:
    """Return what ``node.`` paths can read."""
    return {"parent": None, **msgspec.to_builtins(node)}


def read(run: FlowRun, node: Node, payload: Payload, path: list[Value]) -> Value:
    """Return the value of ``path`` at ``node``.

    Raises NotFound for a missing variable, and FlowError for a key of something without keys.
    """
    space, rest = _split(path)
    if space == "f":
        return _read_field(run, node, payload, rest)
    if space == "t":
        return _read_tag(run, rest[0])
    if space in ("node", "exe"):
        known = node_data(node) if space == "node" else run.describe()
        value, _ = get_path(known, rest)
        if value is MISSING:
            raise NotFound(f'found nothing at "{path_text(rest)}"')
        return value
    value = _read_variable(run, node, space[:-1], rest)
    if value is MISSING:
        raise NotFound(f'variable "{path_text(rest[:1])}" not found')
    return value


# -- writing ---------------------------------------------------------------------------------


def _target_scope(run: FlowRun, node: Node, mode: str, name: str) -> Node:
    if mode == "g":
        return run.touch(ROOT)
    if mode == "d":
        raise FlowError(
            f'cannot set domain variable "{name}": it belongs to the domain, not to a flow'
        )
    owner = None if mode == "l" else owner_of(run, node, name, despite_lists=True)
    return run.touch((owner or nearest_scope(run, node)).nid)


def _set(run: FlowRun, container: Value, path: list[Value], value: Value, what: str) -> Any:
    try:
        return set_path(container, path, value, run.sizes.limits)
    except LimitExceeded:
        raise
    except FlowError as error:
        raise FlowError(f"couldn't set {what}") from error


def write(run: FlowRun, node: Node, payload: Payload, path: list[Value], value: Value) -> Payload:
    """Set ``path`` to ``value``; return the resulting payload."""
    space, rest = _split(path)
    if space == "f":
        changed: Payload = _set(run, payload, rest, value, f"field {path_text(rest)}")
        if len(rest) > 1:
            field = changed.get(rest[0]) if type(rest[0]) is str else None
            run.sizes.check_parts(field or changed, (value,), levels=len(rest) - 1)
        if rest[0] != "ret" and "ret" in changed:
            changed["ret"] = dup_function(changed["ret"])
        return changed
    if space not in ("v", "lv", "gv", "dv"):
        raise FlowError(f'cannot set "{path_text(path)}": only fields and variables can be set')
    name = rest[0] if type(rest[0]) is str else path_text(rest[:1])
    scope = _target_scope(run, node, space[:-1], name)
    if scope.vars is None:
        scope.vars = {}
    if len(rest) == 1:
        scope.vars[name] = value
    elif name in scope.vars:
        old = scope.vars[name]
        new = _set(run, old, rest[1:], value, f"var {path_text(path)}")
        scope.vars[name] = run.sizes.check_parts(new, (value,), levels=len(rest) - 1)
        if name == "reply" and type(scope.vars.get("replies")) is dict:
            _follow_reply(scope.vars, old, new)
    else:
        raise FlowError(f"couldn't set var {path_text(path)}")
    return payload


def _follow_reply(variables: dict[str, Any], old: Value, new: Value) -> None:
    """Also update ``replies`` when a receiver function changes ``reply``."""
    replies = variables["replies"]
    nid = variables.get("from")
    if type(nid) is str and replies.get(nid) is old:
        variables["replies"] = {**replies, nid: new}


def delete(run: FlowRun, node: Node, payload: Payload, path: list[Value]) -> tuple[Payload, Value]:
    """Remove ``path``; return the resulting payload and the removed value, or ``MISSING``."""
    space, rest = _split(path)
    if space == "f":
        return del_path(payload, rest), get_path(payload, rest)[0]
    if space not in ("v", "lv", "gv"):
        raise FlowError(
            f'cannot delete "{path_text(path)}": only fields and variables can be deleted'
        )
    name = rest[0] if type(rest[0]) is str else path_text(rest[:1])
    owner = run.nodes[ROOT] if space == "gv" else owner_of(run, node, name)
    if owner is None or owner.vars is None or name not in owner.vars:
        return payload, MISSING
    owner = run.touch(owner.nid)
    variables: dict[str, Any] = owner.vars or {}
    old, _ = get_path(variables, rest)
    owner.vars = del_path(variables, rest)
    return payload, old
