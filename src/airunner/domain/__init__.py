"""What a job is and how it may change: pure values and rules, standard library only, no I/O."""
