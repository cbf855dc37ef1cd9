"""`python -m mlxspec_cli` is `mlxspec`."""

import sys

from mlxspec_cli.main import main

sys.exit(main())
