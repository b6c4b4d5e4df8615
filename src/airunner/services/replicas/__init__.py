"""What servers of one store learn from each other: by looking, and by bells that they post."""
