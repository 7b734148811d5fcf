"""The command `actorflow lab`: simulate, measure, advise, compare, capacity, fit, policies.

Exit codes: 0 for success; 1 if the lab could not deliver (the job failed on every batch, no policy
meets the goals, an extra is missing); 2 if an argument, a trace or an output file is wrong; 130
after Ctrl-C. Needs the extra `cli`, and `lab` for figures.
"""

from __future__ import annotations

import typer

from actorflow.lab.commands.run import measure_command, simulate_command
from actorflow.lab.commands.search import (
    advise_command,
    capacity_command,
    compare_command,
    fit_command,
    policies_command,
)

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="The policy lab: what would this batching policy do with your traffic?",
)
app.command("simulate")(simulate_command)
app.command("measure")(measure_command)
app.command("advise")(advise_command)
app.command("compare")(compare_command)
app.command("capacity")(capacity_command)
app.command("fit")(fit_command)
app.command("policies")(policies_command)
