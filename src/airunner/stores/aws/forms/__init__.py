"""The two forms of what a row holds of a job: packed bytes, and maps that people can read."""
