"""This tree beside an earlier commit, in turns."""
