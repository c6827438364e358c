"""`python -m regmixup`: the command line."""

import sys

from regmixup.cli import main

sys.exit(main())
