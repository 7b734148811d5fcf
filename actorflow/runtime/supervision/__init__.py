"""Supervisors, as in OTP: a pure family that decides, and actors that do."""
