"""Commands made of verbs: positional parameters are arguments, the others are options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import typer
from msgspec import Meta

from actorflow.api.cli.arguments import AsJson, StoreName, as_data, as_object
from actorflow.api.cli.connect import reach
from actorflow.api.cli.output import say_json
from actorflow.api.verbs.table import Access, Verb, find_verb

__all__ = ["Show", "verb_command"]

Show: TypeAlias = Callable[[Any, dict[str, Any]], None]
"""Prints a result, given with the parameters of the call."""

_METAVARS = {"id": "EXECUTION", "body": "JSON"}


def verb_command(
    name: str, show: Show, check: Callable[[Any], None] | None = None
) -> Callable[..., None]:
    """Return a command that calls a verb on a store or a live engine.

    `check` gets the result after it was printed, and may end the command with an exit code.
    """
    verb = find_verb(name)
    if verb is None:
        raise KeyError(name)

    def command(**given: Any) -> None:
        store, as_json = given.pop("store"), given.pop("json")
        parameters = {key: _read(verb, key, value) for key, value in given.items()}
        parameters = {key: value for key, value in parameters.items() if value is not None}
        with reach(store, to_change=verb.rights is Access.WRITE) as verbs:
            found = verbs.call(verb, parameters)
        if as_json:
            say_json(found)
        show_nothing = as_json and verb.rights is Access.READ
        if not show_nothing:
            show(found, {**parameters, "store": store, "json": as_json})
        if check is not None:
            check(found)

    command.__doc__ = verb.help
    command.__name__ = verb.name
    positional = [inspect.Parameter("store", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    options: list[inspect.Parameter] = []
    annotations: dict[str, Any] = {"store": StoreName, "json": AsJson}
    for each in verb.parameters:
        is_option = each.kind is each.KEYWORD_ONLY
        required = each.default is each.empty
        annotations[each.name] = _annotation(verb, each, option=is_option)
        default = {} if required else {"default": _default(each.default)}
        kind = inspect.Parameter.KEYWORD_ONLY if is_option else each.POSITIONAL_OR_KEYWORD
        (options if is_option else positional).append(inspect.Parameter(each.name, kind, **default))
    options.append(inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False))
    command.__annotations__ = annotations
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(annotation=annotations[each.name]) for each in (*positional, *options)]
    )
    return command


def _default(value: Any) -> Any:
    return None if isinstance(value, list) else value


def _plain_type(annotation: Any) -> tuple[Any, list[Meta]]:
    """Return what an annotation is without `None` and `Annotated`, and the constraints."""
    found: list[Meta] = []
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *rest = get_args(annotation)
            found += [each for each in rest if isinstance(each, Meta)]
        elif origin in (Union, UnionType):
            # Of several types the first: text, which a command line has anyway.
            annotation = next(each for each in get_args(annotation) if each is not NoneType)
        else:
            return annotation, found


def _annotation(verb: Verb, parameter: inspect.Parameter, *, option: bool) -> Any:
    kind, constraints = _plain_type(verb.types[parameter.name])
    help_ = next((each.description for each in constraints if each.description), None)
    settings: dict[str, Any] = {"help": help_}
    for each in constraints:
        settings |= {
            name: bound for name, bound in (("min", each.ge), ("max", each.le)) if bound is not None
        }
    shown: Any = kind
    if kind is Any or get_origin(kind) is dict:
        shown = str
        settings["metavar"] = "JSON"
    elif kind == list[Any]:
        shown = list[int]
    elif get_origin(kind) is Literal:
        shown = str
        settings["metavar"] = "|".join(get_args(kind))
    if not option:
        settings["metavar"] = _METAVARS.get(parameter.name, parameter.name.upper())
        if parameter.default is not parameter.empty:
            shown |= None
        return Annotated[shown, typer.Argument(**settings)]
    names = []
    if get_origin(kind) is list:
        names = [f"--{parameter.name.removesuffix('s')}"]
        shown |= None
    elif parameter.default is None:
        shown |= None
    return Annotated[shown, typer.Option(*names, **settings)]


def _read(verb: Verb, name: str, value: Any) -> Any:
    """Return the value of an argument on the command line."""
    kind, _ = _plain_type(verb.types[name])
    if value is None or (isinstance(value, list) and not value):
        return None
    if kind is Any:
        return as_data(value)
    if get_origin(kind) is dict:
        return as_object(value)
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(get_args(kind))}")
    return value
