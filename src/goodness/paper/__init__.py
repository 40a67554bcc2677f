"""What the paper reports, as data."""
