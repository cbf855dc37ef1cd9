"""On the path of a process: its collectives take as many milliseconds more as a file says.

`MLXSPEC_SLOW_LINK` names the file, so one run can measure several delays. The time is slept where a
collective is called, on every rank at once. A forward calls them one after the other and waits for
none before the next, so their sum is what a slower link would add.
"""

import os
import sys
import time
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path

_FILE = os.environ.get("MLXSPEC_SLOW_LINK", "")


def _slow(call):
    def run(*args, **kwargs):
        time.sleep(float(Path(_FILE).read_text(encoding="utf-8")) / 1e3)
        return call(*args, **kwargs)

    return run


class _CoreFinder(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "mlx.core":
            return None
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def run_and_slow(module):
            run(module)
            for call in ("all_sum", "all_gather", "send", "recv_like"):
                setattr(module.distributed, call, _slow(getattr(module.distributed, call)))

        spec.loader.exec_module = run_and_slow
        return spec


if _FILE:
    sys.meta_path.insert(0, _CoreFinder())
