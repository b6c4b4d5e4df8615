"""The housekeeping tasks, one module each."""
