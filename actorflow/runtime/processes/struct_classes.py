"""Send msgspec structs by value: classes of a session without a file, or defined in a function.

Pickle rebuilds a class from an empty one. That cannot work for a struct, whose fields are laid out
when its class is made. Here the class is made with its fields by `msgspec.defstruct`; then it gets
its annotations and methods, which may refer to the class itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import msgspec

from actorflow.runtime.errors import kind_and_text

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["is_struct_class", "reduce_struct"]

_OPTIONS = (
    "frozen", "eq", "order", "array_like", "gc", "repr_omit_defaults", "omit_defaults",
    "forbid_unknown_fields", "weakref", "dict", "cache_hash", "tag_field", "tag",
)  # fmt: skip

_MADE = frozenset(
    ("__annotations__", "__slots__", "__weakref__", "__dict__", "__msgspec_cache__")
)  # fmt: skip
"""Attributes that belong to one class, and that the new one has of its own."""

_POST_INIT = "__post_init__"

_ids: WeakKeyDictionary[type, str] = WeakKeyDictionary()
_classes: WeakValueDictionary[str, type] = WeakValueDictionary()
# A class that comes back to the process that has sent it is the one that was sent.
_incomplete: WeakSet[type] = WeakSet()


def is_struct_class(value: Any) -> bool:
    """Return whether a value is a class of msgspec structs."""
    return isinstance(value, msgspec.StructMeta)


def reduce_struct(struct: Any) -> tuple[Any, ...]:
    """Return what pickle rebuilds a class of structs from.

    Raises:
        TypeError: its annotations cannot be resolved here.

    """
    own = struct.__dict__
    try:
        fields = msgspec.structs.fields(struct)
    except Exception as error:
        msg = (
            f"struct {struct.__qualname__} cannot be sent to another process, because its "
            f"annotations cannot be resolved ({kind_and_text(error)}): define it at the top of a "
            "module that can be imported"
        )
        raise TypeError(msg) from error
    added = own.get("__annotations__", ())
    fields = tuple(each for each in fields if each.name in added)
    given = [(each.name, each.encode_name, each.default, each.default_factory) for each in fields]
    # Types instead of their names, which mean nothing elsewhere.
    annotations = {each.name: each.type for each in fields}
    config = struct.__struct_config__
    options = {name: getattr(config, name) for name in _OPTIONS}
    options["kw_only"] = not annotations.keys() <= set(struct.__match_args__)
    options["module"], options["bases"] = struct.__module__, struct.__bases__
    namespace = {
        name: own[name] for name in ("__qualname__", "__orig_bases__", "__doc__") if name in own
    }
    others = _MADE | annotations.keys() | namespace.keys()
    kept = {name: value for name, value in own.items() if name not in others}
    if _POST_INIT in kept:
        kept[_POST_INIT] = getattr(kept[_POST_INIT], "actorflow_real", kept[_POST_INIT])
        namespace[_POST_INIT] = None
    made = (_id_of(struct), struct.__name__, given, namespace, options)
    return _make, made, (annotations, kept), None, None, _complete


def _id_of(struct: type) -> str:
    """Return the name under which processes know a class."""
    name = _ids.get(struct)
    if name is None:
        name = _ids[struct] = uuid4().hex
        _classes[name] = struct
    return name


def _make(
    id_: str,
    name: str,
    given: list[tuple[str, str, Any, Any]],
    namespace: dict[str, Any],
    options: Mapping[str, Any],
) -> type:
    """Return the class of that id, if this process has it; else one with fields of any type."""
    known = _classes.get(id_)
    if known is not None:
        return known
    new_field: Any = msgspec.field
    fields = [
        (field, Any, new_field(default=default, default_factory=factory, name=written))
        for field, written, default, factory in given
    ]
    if _POST_INIT in namespace:  # msgspec looks for it only now
        namespace[_POST_INIT] = _late_post_init()
    made = msgspec.defstruct(name, fields, namespace=namespace, **options)
    _ids[made] = id_
    _classes[id_] = made
    _incomplete.add(made)
    return made


def _late_post_init() -> Any:
    def post_init(self: Any) -> None:
        post_init.actorflow_real(self)  # type: ignore[attr-defined]

    return post_init


def _complete(struct: Any, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Give a class its annotations and methods, unless it had them before."""
    annotations, kept = state
    if struct not in _incomplete:
        return
    _incomplete.discard(struct)
    struct.__annotations__ = annotations
    for name, value in kept.items():
        if name == _POST_INIT:
            struct.__dict__[name].actorflow_real = value
        else:
            setattr(struct, name, value)
