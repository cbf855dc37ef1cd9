"""On the path of a subprocess: mlxspec believes there that MLX computes on a GPU.

`pytest --device-facts gpu` puts this folder into PYTHONPATH, and Python imports this module before
anything else. The facts are changed as soon as `mlxspec.device.backend` is imported, and no
sooner: what a program imports, and when, is tested as well.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder


class _BackendFinder(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "mlxspec.device.backend":
            return None
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def run_and_change(module):
            run(module)
            module.is_cpu = module.lacks_accelerate = lambda: False

        spec.loader.exec_module = run_and_change
        return spec


sys.meta_path.insert(0, _BackendFinder())
