"""The production store: SQS carries, DynamoDB decides."""
