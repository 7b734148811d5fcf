"""Plans on an engine: durable, so that finished jobs survive any crash."""
