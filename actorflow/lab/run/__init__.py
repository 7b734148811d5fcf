"""Running policies: simulated, measured, or searched for by goals."""
