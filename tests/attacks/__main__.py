"""``python -m attacks``."""

import sys

from attacks.running import main

if __name__ == "__main__":
    sys.exit(main())
