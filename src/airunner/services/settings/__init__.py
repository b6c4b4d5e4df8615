"""Settings that change while servers run: which there are, where each lives, and what they do."""
