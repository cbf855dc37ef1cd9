"""`python -m mlxspec` is `mlxspec`."""

import sys

from mlxspec.cli import main

sys.exit(main())
