"""What every store and every message queue does, by subject; stores in process and over the wire.

Each module holds one class of tests. Those in `stores` take a fixture `api` (see `stores.backend`), and where
the operator's rules matter also `open_api`, which makes such a thing with rules of its own. A new store runs
them all by one more entry in its `conftest`; where stores may differ, the tests ask `api.capabilities`. Those
in `queues` take a fixture `site` (see `queues.backend`): an empty queue, and its dead-letter queue.
"""
