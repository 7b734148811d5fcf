"""The tour: it shows the code that it runs, in colours on a terminal, with the library alone."""

from __future__ import annotations

import ast
import io
import os
import pty
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from examples import tour

ROOT = Path(__file__).parent.parent
TOUR = ROOT / "examples/tour.py"
PATIENCE = 50  # seconds for a subprocess: less than a test's timeout, so that its output is seen
EXTRAS = ("fastapi", "hypothesis", "matplotlib", "nats", "numpy", "pytest", "re2", "rich", "typer")
ANSI = re.compile(r"\x1b\[[\d;]*m")


def environment(**changes: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "TERM"}}
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"} | changes


def piped(*arguments: str, **changes: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        env=environment(**changes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def on_a_terminal(*arguments: str, typed: str = "", **changes: str) -> str:
    """Run our interpreter on a pseudo-terminal; return what it printed there."""
    terminal, end = pty.openpty()
    with subprocess.Popen(
        [sys.executable, *arguments], env=environment(**changes), stdin=end, stdout=end, stderr=end
    ) as process:
        os.close(end)
        os.write(terminal, typed.encode())
        printed = b""
        try:
            while chunk := os.read(terminal, 65_536):
                printed += chunk
        except OSError:  # how Linux reports that the other end is closed
            pass
        finally:
            os.close(terminal)
        assert process.wait(PATIENCE) == 0, printed.decode()
    return printed.decode().replace("\r\n", "\n")


@pytest.fixture(scope="module")
def whole_tour() -> str:
    """Return what the tour prints where nothing but the library is installed."""
    without = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r}))"
    start = f"import runpy; runpy.run_path({str(TOUR)!r}, run_name='__main__')"
    return piped("-c", f"{without}; {start}")


def test_the_tour_shows_all_code_that_it_runs(whole_tour: str) -> None:
    source = TOUR.read_text(encoding="utf-8")
    place = 0
    for node in ast.parse(source).body:
        if not (isinstance(node, ast.FunctionDef) and ast.unparse(node).startswith("@section")):
            continue
        after_docstring = node.body[0].end_lineno
        code = "\n".join(source.splitlines()[after_docstring : node.end_lineno]).strip("\n")
        shown = textwrap.indent(textwrap.dedent(code), "    ")
        place = whole_tour.index(f"\n\n{shown}\n\n  > ", place)
    assert place > 0


def test_the_tour_shows_what_the_code_printed(whole_tour: str) -> None:
    assert "  > the job gets [1]\n  > the job gets [2, 3, 4, 5, 6, 7, 8, 9]\n" in whole_tour
    assert re.search(r"  > batched +500,000 rows in +[\d,]+ calls: +[\d,]+ rows/s\n", whole_tour)
    assert "  > ate ['bread', 'butter', 'salt', 'pepper'], 4 since the last start\n" in whole_tour
    assert "  > dead letter: 666, because of ValueError('cannot digest this')\n" in whole_tour
    assert "  > Tuesday: 6 orders so far\n" in whole_tour
    assert "  > the flow is done\n" in whole_tour
    assert "  > o-1: 40 paid\n" in whole_tour
    assert "  > ProcessCrashed: process " in whole_tour
    assert "  > cluster 4 {'o-1': 'paid 40', 'o-2': 'paid 40'}\n" in whole_tour
    assert re.search(r"  > adaptive\(queue, 50ms\) +p99 [\d. ]+ ms", whole_tour)


def test_the_tour_is_plain_when_piped_and_coloured_on_a_terminal(whole_tour: str) -> None:
    plain = piped(str(TOUR), "batches", "behaviours")
    coloured = on_a_terminal(str(TOUR), "--all", "batches", "behaviours")
    assert not ANSI.search(whole_tour + plain)
    assert ANSI.search(coloured)
    took = re.compile(r"took [\d.]+ s")
    assert took.sub("", ANSI.sub("", coloured)) == took.sub("", plain)


@pytest.mark.parametrize("changes", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_the_tour_is_plain_on_a_terminal_without_colours(changes: dict[str, str]) -> None:
    assert not ANSI.search(on_a_terminal(str(TOUR), "batches", **changes))


def test_the_tour_runs_where_the_terminal_knows_only_ascii() -> None:
    printed = piped(str(TOUR), "crash", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert "  > ?? 'eater': idle, 1 restart" in printed


@pytest.mark.parametrize(("typed", "shown"), [("\nq\n", 2), ("a\n", 3)])
def test_the_tour_waits_between_sections_on_a_terminal(typed: str, shown: int) -> None:
    printed = on_a_terminal(str(TOUR), "batches", "crash", "batches", typed=typed, NO_COLOR="1")
    assert printed.count("q quits:") == (2 if shown == 2 else 1)
    assert [f"\n{number}. " in printed for number in (1, 2, 3)].count(True) == shown
    assert printed.rstrip().endswith("actorflow new demo && cd demo && make test")


def test_an_unknown_section_is_refused_with_the_names_of_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tour.py", "batches", "nowhere"])
    with pytest.raises(SystemExit, match="2"):
        tour.main()
    assert "no section nowhere; there are batches, throughput" in capsys.readouterr().err


def test_lines_that_several_threads_print_stay_whole() -> None:
    stream = io.StringIO()
    margin = tour.Margin(tour.Screen(stream))
    other = threading.Thread(target=margin.write, args=("half of a line",))
    other.start()
    other.join()
    print("a whole", "line", file=margin)
    assert stream.getvalue() == "  > a whole line\n"


@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/*.py")), ids=lambda path: path.name)
def test_examples_import_only_what_is_public(example: Path) -> None:
    public = {"actorflow", "actorflow.behaviours", "actorflow.lab", "actorflow.testing.simulation"}
    imported = {
        name
        for node in ast.walk(ast.parse(example.read_text(encoding="utf-8")))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    outside = {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names}
    assert outside <= public
