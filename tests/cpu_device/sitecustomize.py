"""On the path of a process: MLX computes on the CPU there, whatever devices the machine has.

`pytest --device cpu` puts this folder into PYTHONPATH, and Python imports this module before
anything else. The device is chosen as soon as `mlx.core` is imported, and no sooner: what a
program imports, and when, is tested as well.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder


class _CoreFinder(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "mlx.core":
            return None
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def run_and_choose(module):
            run(module)
            module.set_default_device(module.cpu)

        spec.loader.exec_module = run_and_choose
        return spec


sys.meta_path.insert(0, _CoreFinder())
