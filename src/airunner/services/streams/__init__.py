"""What streams of events read, and how each comes to its reader."""
