"""Values of flows: what they are, paths into them, and how they read as text or as times."""
