"""Makes `python -m mlxspec_cli` the same as `mlxspec`."""

import sys

from mlxspec_cli.main import main

sys.exit(main())
