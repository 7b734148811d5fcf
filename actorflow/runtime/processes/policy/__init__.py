"""Decides for a pool who gets which call, and when processes come and go. Pure."""
