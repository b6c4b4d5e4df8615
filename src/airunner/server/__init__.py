"""The HTTP server around the services."""
