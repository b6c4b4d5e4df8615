"""The same 10,000 jobs that do nothing, drained by airunner and by its peers."""
