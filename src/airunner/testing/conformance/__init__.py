"""What every store does, by subject, in process and over the wire.

Each module holds one class of tests. They take a fixture `api` (see `backend`), and where the operator's
rules matter also `open_api`, which makes such a thing with rules of its own. A new store runs them all by
one more entry in its `conftest`; where stores may differ, the tests ask `api.capabilities`.
"""
