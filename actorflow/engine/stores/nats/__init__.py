"""Many engines on one NATS JetStream."""
