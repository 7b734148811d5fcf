"""The pair: an accumulator and its executor, as one machine."""
