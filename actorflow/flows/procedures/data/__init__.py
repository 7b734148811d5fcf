"""Procedures that work on values: literals, operators, variables, collections, strings."""
