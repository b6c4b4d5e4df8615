"""The rules of the job platform, on any store."""
