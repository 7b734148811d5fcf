"""The pair: an executor fronted by an accumulator."""
