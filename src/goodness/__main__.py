"""`python -m goodness` is the command `goodness`."""

import sys

from goodness.cli import main

if __name__ == "__main__":
    sys.exit(main())
