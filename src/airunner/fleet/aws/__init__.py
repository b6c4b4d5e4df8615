"""The ports of the fleet on AWS."""
