"""Sessions as callers see them: started, read, listed, and followed to their ends."""
