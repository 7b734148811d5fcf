"""The routes of the control application, a module for each concern."""
