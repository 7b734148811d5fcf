"""What the lab is about: traffic, service times, policies, and their notation."""
