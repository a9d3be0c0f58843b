"""Run the command with ``python -m cordcal``."""

import sys

from cordcal.cli import main

if __name__ == "__main__":
    sys.exit(main())
