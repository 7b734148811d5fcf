"""What people do with a store: look, export, mend, count."""
