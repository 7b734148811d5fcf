"""The dashboard: pages that show an engine or a store, and act on it where that is allowed."""
