"""Procedures that control what runs when: sequences, conditions, loops, functions, branches."""
