"""`python -m mlxspec` is `mlxspec`."""

import sys

from mlxspec_cli.main import main

sys.exit(main())
