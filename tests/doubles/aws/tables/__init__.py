"""What the double knows of DynamoDB beyond the emulator: rules, old images, tokens, what keys can take."""
