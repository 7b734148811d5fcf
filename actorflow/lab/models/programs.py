"""Python programs: print a policy as a complete program, ready to paste."""

from __future__ import annotations

from dataclasses import dataclass, field

from actorflow import behaviours
from actorflow.lab.models.notation import BareWord, NamedCall, Term, parse
from actorflow.lab.models.policies import BEHAVIOURS, FIELDS, powers_of_two, resolve

__all__ = ["expression", "program"]

_POSITIONAL = 2  # further arguments are named, so that the code can be read
_NEEDED = {behaviours.Coalesce: {"merge": "merge"}, behaviours.Lanes: {"by": "lane"}}
_KEYWORDS = ("key=", "weight=")
_KEYWORD_ONLY = ("first", "follow", "overhead")
_FUNCTIONS = {
    "key": "def key(message):  # adapt: what tells messages apart\n    return message[0]",
    "priority": "def priority(message):  # adapt: the higher, the sooner\n    return message[1]",
    "size": "def size(message):  # adapt: how much of a batch a message takes\n"
    "    return message[2]",
    "at": "def at(message):  # adapt: when the message was made\n    return message[3]",
    "lane": "def lane(message):  # adapt: which lane a message is for\n"
    "    return 'first' if message[1] > 1 else 'follow'",
    "merge": "def merge(old, new):  # adapt: one message made of two\n    return new",
}
_JOB = "def job(batch, state):  # your job\n    return state"


@dataclass(slots=True)
class _Code:
    """What a program needs besides the expression itself, in the order of its use."""

    text: str
    classes: dict[type, None] = field(default_factory=dict)
    functions: dict[str, None] = field(default_factory=dict)

    def expression(self, term: Term) -> str:
        kind, bound = resolve(self.text, term)
        self.classes[kind.behaviour] = None
        parts = []
        for at, name in enumerate(kind.arguments):
            value = bound.get(name)
            if name == "key":
                if value is not None or kind.field is not None:
                    parts.append(f"key={self._function(value, kind.field or 'key')}")
            elif name == "size" and kind.behaviour is behaviours.PadTo and isinstance(value, int):
                parts.append(repr(powers_of_two(value)))
            elif name == "weight":
                if value is not None or kind.weight is not None:
                    parts.append(f"weight={self._function(value, 'size')}")
            elif value is not None:
                shown = self.expression(value) if name in BEHAVIOURS else _literal(value)
                named = at >= _POSITIONAL or any(part.startswith(_KEYWORDS) for part in parts)
                named = named or name in _KEYWORD_ONLY
                parts.append(f"{name}={shown}" if named else shown)
        for argument, function in _NEEDED.get(kind.behaviour, {}).items():
            self.functions[function] = None
            parts.append(f"{argument}={function}")
        return f"{kind.behaviour.__name__}({', '.join(parts)})"

    def _function(self, value: Term | None, default: str) -> str:
        """Return the name of the function for a field, which is given by name or by place."""
        names = {place: name for name, place in FIELDS.items()}
        name = value.name if isinstance(value, BareWord) else default
        if isinstance(value, int):
            name = names.get(value, default)
        self.functions[name] = None
        return name


def _literal(value: Term) -> str:
    if isinstance(value, BareWord | NamedCall):
        return repr(value.name)
    return repr(float(value)) if isinstance(value, float) else repr(value)


def expression(text: str) -> str:
    """Return the Python expression that builds a policy, with fields of a message as functions.

    >>> expression("chunk(priority, 50)")
    'Chunk(Priority(key=priority), 50)'
    >>> expression("bounded(linger(unique, 20ms), 1000, drop_oldest)")
    "Bounded(Linger(Unique(key=key), 0.02), 1000, when_full='drop_oldest')"
    """
    return _Code(text).expression(parse(text))


def program(text: str) -> str:
    """Return a program that starts a worker with a policy: imports, functions, the worker.

    It runs as it is, for messages of the lab; what to adapt is marked.
    """
    code = _Code(text)
    built = code.expression(parse(text))
    modules: dict[str, list[str]] = {}
    for each in code.classes:
        own = getattr(behaviours, each.__name__, None) is each
        modules.setdefault(behaviours.__name__ if own else each.__module__, []).append(
            each.__name__
        )
    imports = ["import actorflow as af"]
    imports += [
        f"from {module} import {', '.join(sorted(names))}"
        for module, names in sorted(modules.items())
    ]
    functions = [_FUNCTIONS[name] for name in code.functions]
    last = f"worker = af.spawn(job, behaviour={built})"
    return "\n\n\n".join(["\n".join(imports), _JOB, *functions, last])
