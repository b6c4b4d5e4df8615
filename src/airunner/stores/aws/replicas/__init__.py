"""What replicas tell each other through the tables."""
