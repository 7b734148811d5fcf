"""What each kind of message does: one module per point, or per pair of points."""
