"""The generated pages of `docs/reference/`, and the navigation of the documentation.

The pages list options, behaviours, metrics, HTTP routes and commands.

`PYTHONPATH=. python tests/test_reference.py` writes them anew.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
import tomllib
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import pytest
from msgspec import Meta

import actorflow as af
import actorflow.behaviours
from actorflow.api.cli.register import load
from actorflow.api.cli.table import COMMANDS
from actorflow.api.verbs.table import all_verbs
from actorflow.behaviours import Behaviour
from actorflow.engine.operations import metrics
from actorflow.runtime.supervision.spec import Flags
from actorflow.runtime.telemetry import prometheus
from actorflow.runtime.worker.options import DEFAULTS, OptionsWithoutState, WorkerOptions
from actorflow.workflows.task import TaskOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

FOLDER = Path(__file__).parents[1] / "docs" / "reference"

WORKER_OPTIONS_TEXT = (
    "For `af.spawn(job, ...)`, `af.Worker(id, job, ...)` and, except `state`, "
    "`@af.batched(behaviour, ...)`."
)
OPTIONS_TEXT = (
    "Every option with its default. An option that does not exist, and a value that cannot work, "
    "raise an error which shows the right call."
)
BEHAVIOURS_TEXT = (
    "The constructor of each behaviour. [Behaviours](../behaviours.md) explains how to choose and "
    "combine them; `inner` is the behaviour that a wrapper goes around."
)
METRICS_TEXT = (
    "The metrics for Prometheus. [Observability](../observability.md) shows how to register the "
    "collectors, and [alerts.yml](../monitoring/alerts.yml) has alert rules. A percentile appears "
    "after the first measurement."
)
STORE_METRICS_TEXT = (
    "`actorflow.engine.operations.metrics.StoreCollector`; `actorflow cluster worker --http` "
    "serves it."
)
HTTP_TEXT = (
    "The routes of the API. `Client` of `actorflow.api.client` has a method for each, with the "
    'same parameters: `client.send("o-1", {"paid": 40})`. [Operating an '
    "engine](../operating.md#http) shows how to open a port, and the errors."
)
HTTP_PARAMETERS_TEXT = (
    "Parameters of GET go into the query, those of POST into a JSON object. The parameters before "
    "`*` may be given by position to `Client`."
)
COMMAND_LINE_TEXT = (
    "The arguments and options of each command, as `actorflow COMMAND --help` shows them. "
    "[Operating an engine](../operating.md#commands) explains stores, live engines and exit "
    "codes."
)


# --- options -------------------------------------------------------------------------------------

ARGUMENT = re.compile(r"^ {4}(\*{0,2}\w+): (.*)$")


def arguments(function: Any) -> dict[str, str]:
    """Return the texts of the section `Args` of a docstring, by name."""
    found: dict[str, str] = {}
    name = ""
    _, _, rest = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    for line in rest.split("\n"):
        if line and not line.startswith(" "):
            break
        if match := ARGUMENT.match(line):
            name = match[1]
            found[name] = match[2]
        elif line.strip() and name:
            found[name] += " " + line.strip()
    return found


def attributes(cls: type) -> dict[str, str]:
    """Return the docstrings below the annotated names of a class."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body  # type: ignore[attr-defined]
    return {
        node.target.id: " ".join(str(ast.literal_eval(after.value)).split())
        for node, after in pairwise(body)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(after, ast.Expr)
    }


def shown(value: Any) -> str:
    """Return a default as a user would write it."""
    if value is inspect.Parameter.empty:
        return ""
    if inspect.isclass(value):
        return f"`{value.__name__}`"
    if isinstance(value, float) and value >= 3_600 and value == int(value):
        return f"`{int(value):_}.0`"
    text = repr(value)
    return "" if text.startswith("<") else f"`{text}`"


def defaults(function: Any) -> dict[str, Any]:
    return {name: each.default for name, each in inspect.signature(function).parameters.items()}


def sentences(text: str) -> str:
    """Return a text as the cell of a table."""
    text = text.strip().replace("|", "\\|")
    word = text.partition(" ")[0].rstrip(",:;")
    return text[:1].upper() + text[1:] if word.isalpha() else text


def rows(texts: Mapping[str, str], values: Mapping[str, Any]) -> Iterator[str]:
    for name, text in texts.items():
        default = shown(values.get(name.lstrip("*"), inspect.Parameter.empty))
        yield f"| `{name}` | {default} | {sentences(text)} |"


def options_page() -> str:
    worker = attributes(WorkerOptions) | attributes(OptionsWithoutState)
    sections: list[tuple[str, str, Mapping[str, str], Mapping[str, Any]]] = [
        (
            "Workers",
            WORKER_OPTIONS_TEXT,
            worker,
            DEFAULTS,
        ),
        ("Worker processes", "For `executor=af.Processes(...)`.", *both(af.Processes)),
        ("Supervisors", "For `af.Supervisor(children, ...)`.", *both(af.Supervisor, Flags)),
        ("Engines", "For `af.Engine(where, ...)`.", *both(af.Engine)),
        (
            "Durable workers",
            "For `engine.worker(name, job, ...)`.",
            *both(af.Engine.worker),
        ),
        ("Tasks of workflows", "For `@af.task(...)`.", *both(TaskOptions)),
        (
            "Workflows",
            "For the class: `class Order(af.Workflow[str], keep_events=False)`.",
            *both(af.Workflow.__init_subclass__),
        ),
        ("Jobs of plans", "For `plan.job(function, *args, ...)`.", *both(af.Plan.job)),
        ("Runs of plans", "For `plan.run(...)`.", *both(af.Plan.run)),
    ]
    lines = [
        "# Options",
        "",
        OPTIONS_TEXT,
    ]
    for title, use, texts, values in sections:
        lines += ["", f"## {title}", "", use, "", "| option | default | meaning |", "|---|---|---|"]
        lines += rows(texts, values)
    lines += ["", "## Values of options"]
    for name in ("Retry", "Isolate", "Drop", "Breaker", "Backoff"):
        lines += in_words(name)
    return "\n".join(lines).rstrip() + "\n"


def both(*functions: Any) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the texts of the arguments of a function or class, and their defaults.

    The defaults of further functions complete those of the first one.
    """
    values = {
        name: each for function in reversed(functions) for name, each in defaults(function).items()
    }
    return arguments(functions[0]), values


def in_words(name: str) -> Iterator[str]:
    """Yield the signature and the docstring of a small class."""
    cls = getattr(af, name)
    text = (inspect.getdoc(cls) or "").partition("\n>>>")[0].strip()
    yield from ("", f"### `af.{name}{signature(cls)}`", "")
    yield from (" ".join(part.split("\n")) + "\n" for part in text.split("\n\n"))


def signature(cls: Any) -> str:
    """Return the arguments of a class without their types."""
    given = inspect.signature(cls)
    if any(name.startswith("_") for name in given.parameters):
        given = inspect.signature(cls.__init__)
    shorter = [
        each.replace(annotation=inspect.Parameter.empty)
        for name, each in given.parameters.items()
        if name != "self" and each.annotation != "Never"
    ]
    text = str(inspect.Signature(shorter))
    return re.sub(r"<[^>]*>", "...", re.sub(r"<class '[\w.]*\.(\w+)'>", r"\1", text))


# --- behaviours ----------------------------------------------------------------------------------


def behaviours_page() -> str:
    lines = [
        "# Behaviours",
        "",
        BEHAVIOURS_TEXT,
        "",
        "| behaviour | what it hands over |",
        "|---|---|",
    ]
    for name in sorted(actorflow.behaviours.__all__):
        cls = getattr(actorflow.behaviours, name)
        page = FOLDER.parent / "behaviours" / f"{name.lower()}.md"
        if not (inspect.isclass(cls) and issubclass(cls, Behaviour) and page.exists()):
            continue
        given = signature(cls).replace("|", "\\|")
        first = (inspect.getdoc(cls) or "").partition("\n\n")[0].replace("\n", " ")
        lines.append(f"| [`{name}{given}`](../behaviours/{page.name}) | {first} |")
    return "\n".join(lines) + "\n"


# --- metrics -------------------------------------------------------------------------------------


def scraped(collect: Callable[[], Iterable[Any]]) -> Iterator[str]:
    for family in sorted(collect(), key=lambda each: str(each.name)):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        text = sentences(family.documentation)
        yield f"| `{name}` | {family.type} | {', '.join(labels)} | {text} |"


def metrics_page() -> str:
    head = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    tree = af.Supervisor([af.Worker("saver", lambda _batch, state: state)], name="reference-tree")
    with (
        tree,
        af.spawn(lambda _batch, state: state, name="reference-worker") as worker,
        af.Engine(":memory:") as engine,
    ):
        worker.push_block("message")
        engine.worker("counter", lambda batch, state: state + len(batch), state=0).push_block(1)
        of_workers = list(scraped(prometheus.Collector().collect))
        of_engine = list(scraped(metrics.EngineCollector(engine).collect))
        of_store = list(scraped(metrics.StoreCollector(engine.parts.store).collect))
    status = SimpleNamespace(members=[], unowned=[], tasks=[])  # as a store of a cluster has it
    of_members = list(scraped(lambda: metrics._members(status)))
    lines = [
        "# Metrics",
        "",
        METRICS_TEXT,
        "",
        "## Workers, supervisors and the pool",
        "",
        "`actorflow.runtime.telemetry.prometheus.Collector`",
        "",
        *head,
        *of_workers,
        "",
        "## Engines",
        "",
        "`actorflow.engine.operations.metrics.EngineCollector`",
        "",
        *head,
        *of_engine,
        "",
        "## Stores",
        "",
        STORE_METRICS_TEXT,
        "",
        *head,
        *of_store,
        "",
        "## Stores that engines share",
        "",
        "`StoreCollector`, in addition. `member` is the name of a worker.",
        "",
        *head,
        *of_members,
    ]
    return "\n".join(lines) + "\n"


# --- HTTP and the client -------------------------------------------------------------------------


def http_page() -> str:
    lines = [
        "# HTTP",
        "",
        HTTP_TEXT,
        "",
        HTTP_PARAMETERS_TEXT,
    ]
    for name, verb in sorted(all_verbs().items()):
        paragraphs = [" ".join(part.split()) for part in verb.help.split("\n\n")]
        paragraphs = [part for part in paragraphs if not part.startswith("Raises:")]
        given = ", ".join(positions(verb.parameters))
        lines += ["", f"## `{verb.method} {verb.path}`", "", f"`client.{name}({given})`", ""]
        lines += ["\n\n".join(paragraphs)]
        if verb.parameters:
            lines += ["", "| parameter | default | meaning |", "|---|---|---|"]
        for each in verb.parameters:
            kind = verb.types[each.name]
            about = next((meta.description for meta in metas(kind) if meta.description), "")
            if get_origin(kind) is Literal:
                about = ", ".join(f"`{value}`" for value in get_args(kind))
            default = "" if each.default is each.empty else f"`{json.dumps(each.default)}`"
            lines.append(f"| `{each.name}` | {default} | {sentences(about)} |")
    return "\n".join(lines) + "\n"


def positions(parameters: Iterable[inspect.Parameter]) -> Iterator[str]:
    """Yield names of parameters, with a star before the keyword-only ones."""
    starred = False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        yield each.name


def metas(annotation: Any) -> Iterator[Meta]:
    """Yield the descriptions within an annotation, the outermost first."""
    for each in getattr(annotation, "__metadata__", ()):
        if isinstance(each, Meta):
            yield each
    for part in get_args(annotation):
        yield from metas(part)


# --- commands ------------------------------------------------------------------------------------


def commands_page() -> str:
    lines = [
        "# Commands",
        "",
        COMMAND_LINE_TEXT,
    ]
    for name in sorted(COMMANDS):
        lines += sections(load(name, COMMANDS[name]), f"actorflow {name}")
    return "\n".join(lines) + "\n"


def metavar(argument: Any) -> str:
    """Return how an argument is written; in brackets if it may be left out."""
    name = argument.metavar or argument.name.upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def sections(command: Any, path: str) -> Iterator[str]:
    """Yield the lines about a command, or about the commands of a group."""
    context = command.context_class(command)
    if hasattr(command, "list_commands"):
        for name in sorted(command.list_commands(context)):
            yield from sections(command.get_command(context, name), f"{path} {name}")
        return
    given = [each for each in command.params if each.name != "help"]
    words = [metavar(each) for each in given if each.param_type_name == "argument"]
    yield from ("", f"## `{' '.join([path, *words])}`", "")
    yield " ".join((command.help or "").partition("\n\n")[0].split())
    if given:
        yield from ("", "| argument | default | meaning |", "|---|---|---|")
    for each in given:
        argument = each.param_type_name == "argument"
        names = metavar(each) if argument else ", ".join(each.opts)
        default = "" if each.default in (None, (), False) else f"`{each.default}`"
        yield f"| `{names}` | {default} | {sentences(each.help or '')} |"


PAGES = {
    "behaviours": behaviours_page,
    "commands": commands_page,
    "http": http_page,
    "metrics": metrics_page,
    "options": options_page,
}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_of_the_reference_is_current(name: str) -> None:
    page = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert page == PAGES[name](), "write it anew: PYTHONPATH=. python tests/test_reference.py"


@pytest.mark.parametrize("name", PAGES)
def test_every_row_of_the_reference_has_a_meaning(name: str) -> None:
    lines = PAGES[name]().splitlines()
    assert [line for line in lines if line.endswith(("| |", "|  |"))] == []


# --- navigation ----------------------------------------------------------------------------------


def pages(tree: Any) -> Iterator[str]:
    """Yield the paths in a navigation."""
    if isinstance(tree, str):
        yield tree
    else:
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from pages(part)


def test_the_index_and_the_navigation_lead_to_every_page() -> None:
    root = FOLDER.parents[1]
    written = {path.relative_to(root).as_posix() for path in root.glob("docs/**/*.md")}
    config = tomllib.loads((root / "zensical.toml").read_text(encoding="utf-8"))
    shown = list(pages(config["project"]["nav"]))
    assert sorted(shown) == sorted({*written, "README.md", "CHANGELOG.md"})

    index = (root / "docs" / "index.md").read_text(encoding="utf-8")
    linked = {f"docs/{target}" for target in re.findall(r"\]\(([\w/.-]+\.md)", index)}
    of_behaviours = {path for path in written if path.startswith("docs/behaviours/")}
    assert written - linked - of_behaviours == {"docs/index.md"}


if __name__ == "__main__":
    for name, made in PAGES.items():
        (FOLDER / f"{name}.md").write_text(made(), encoding="utf-8")
