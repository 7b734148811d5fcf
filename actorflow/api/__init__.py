"""Steering engines from outside: an HTTP application, its client, and the commands."""
