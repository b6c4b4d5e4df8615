"""What SQS has put aside: looking at it, sending it back, deleting it, and doing the obvious by itself."""
