"""Plans: a graph of jobs on transient OS processes."""
