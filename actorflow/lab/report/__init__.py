"""Showing results: tables, files, figures, HTML."""
