"""The agent: hands out decisions and tasks to workers of other languages. Pure."""
