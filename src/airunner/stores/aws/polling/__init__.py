"""Receiving from SQS for those who wait: when it may be done, for whom, and what becomes of the rest."""
