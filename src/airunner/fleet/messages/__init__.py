"""What travels in the queues of the fleet: one module for each kind of message."""
