"""Writing: changes are planned without a database, and written as one transaction."""
