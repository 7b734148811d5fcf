"""Golden data: recorded flows and workflows, taken again step by step and compared."""
