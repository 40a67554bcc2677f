"""What we measure of a block: pure functions on goodness, no file, no terminal."""
