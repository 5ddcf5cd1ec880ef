"""`python -m passback` is `passback`."""

import sys

from passback.cli import main

if __name__ == "__main__":
    sys.exit(main())
