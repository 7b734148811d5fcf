"""Decides for a crew who gets which call, and when processes come and go. Pure."""
