"""What tests of airunner, and of software built on it, need: a clock to move by hand, factories, suites."""
