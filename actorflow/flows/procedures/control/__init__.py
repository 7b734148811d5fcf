"""Procedures that say what runs when: in order, if, again, for each, at once; and what ends."""
