"""The rules of jobs and events, on any store."""
