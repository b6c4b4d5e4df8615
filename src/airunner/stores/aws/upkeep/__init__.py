"""Looking after jobs: what waits, what was lost, what is over, and how many there are."""
