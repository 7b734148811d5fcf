"""The content of each page, as plain data for the templates. No HTTP, no HTML."""
