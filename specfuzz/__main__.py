"""`python -m specfuzz` is the command `specfuzz`."""

import sys

from specfuzz.cli import main

if __name__ == "__main__":
    sys.exit(main())
