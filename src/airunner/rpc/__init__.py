"""The services on the Connect protocol."""
