"""What operators see of a running process: metrics, outages, and views for `actorflow top`."""
