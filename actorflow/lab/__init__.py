"""The policy lab: what a batching policy would do with your traffic."""
