"""Supervisors, as in OTP: a pure family decides, an actor performs."""
