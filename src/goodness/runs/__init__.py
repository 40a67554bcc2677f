"""A run on disk: its folder, what it left, and the store of results."""
