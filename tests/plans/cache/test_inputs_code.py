"""The code that a job gets to see through the results of other jobs counts for its key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[3]
FLOW = """\
    import sys
    import actorflow as af

    plan = af.Plan()
    for name in sys.argv[1:]:
        steps = __import__(name)
        plan.job(steps.predict, plan.job(steps.train, name=f"{name}.train"), name=name)
    if __name__ == "__main__":
        result = plan.run(workers=1, cache="cache")
        for record in result.records:
            if "." not in record.name:
                print(result[record.name], record.reason, sep=" | ")
"""
STEPS = {
    "an instance": """
        from model import Model
        def train(): return Model()
        def predict(model): return model.predict(1)
        """,
    "an instance that the upstream job does not name": """
        import model
        def train(): return model.make()
        def predict(made): return made.predict(1)
        """,
    "a list of instances": """
        from model import Model
        def train(): return [{"a": Model()}]
        def predict(models): return models[0]["a"].predict(1)
        """,
    "a class": """
        from model import Model
        def train(): return Model
        def predict(cls): return cls().predict(1)
        """,
    "a function": """
        from model import function
        def train(): return function
        def predict(function): return function(1)
        """,
    "a function by value": """
        from model import function
        def train(): return lambda x: function(x)
        def predict(function): return function(1)
        """,
    "a function by value that imports": """
        def train():
            def inner(x):
                import model
                return model.function(x)
            return inner
        def predict(function): return function(1)
        """,
    "a bound method": """
        from model import Model
        def train(): return Model().predict
        def predict(method): return method(1)
        """,
    "a subclass": """
        from model import Special
        def train(): return Special()
        def predict(model): return model.predict(1)
        """,
    "a dataclass": """
        from model import Record
        def train(): return Record(0)
        def predict(record): return record.predict(1)
        """,
}
MODEL = """\
    from dataclasses import dataclass

    STEP = 5

    def function(x): return x + STEP

    class Model:
        def predict(self, x): return x + STEP

    class Special(Model):
        pass

    @dataclass
    class Record:
        n: int
        def predict(self, x): return x + STEP

    def make(): return Model()
"""


def run(home: Path, model: str) -> dict[str, list[str]]:
    """Run a plan with all cases in a new process; return the answer and the reason of each."""
    names = {f"steps{at}": case for at, case in enumerate(STEPS)}
    texts = {name: STEPS[case] for name, case in names.items()}
    for name, text in ({"flow": FLOW, "model": model} | texts).items():
        (home / f"{name}.py").write_text(dedent(text))
    done = subprocess.run(
        [sys.executable, "-B", "flow.py", *names],
        cwd=home,
        env={"PYTHONPATH": f"{ROOT}:{home}"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    return {case: line.split(" | ") for case, line in zip(STEPS, lines, strict=True)}


def test_code_that_comes_with_a_result_counts(tmp_path: Path) -> None:
    every = dict.fromkeys
    assert {case: line[0] for case, line in run(tmp_path, MODEL).items()} == every(STEPS, "6")
    assert run(tmp_path, MODEL) == every(STEPS, ["6", "up to date"])
    edited = run(tmp_path, MODEL.replace("STEP = 5", "STEP = 6"))
    assert {case: line[0] for case, line in edited.items()} == every(STEPS, "7")
    gone = MODEL.replace("class Model", "class Renamed").replace("Model)", "Renamed)")
    found = run(tmp_path, gone + "\n    Model = Renamed\n")
    assert {case: line[0] for case, line in found.items()} == every(STEPS, "6")
