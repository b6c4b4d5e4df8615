"""airunner beside its peers: the same jobs, enqueued, drained, dispatched and watched in turns in one run."""
