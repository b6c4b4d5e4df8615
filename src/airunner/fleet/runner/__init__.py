"""What works on an ephemeral instance: one job of its configuration, then a report of how it ended."""
