"""AWS in this process, as much of it as a store calls: tables and queues in virtual time."""
