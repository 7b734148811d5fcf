"""The commands on stores and live engines. They need typer; each loads the rest when called."""
