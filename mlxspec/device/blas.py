"""Chooses the BLAS that the matrix products of MLX call on a Linux CPU.

The MLX wheel bundles the reference BLAS. There n rows cost n times one row, so drafts can never
pay. The dynamic linker prefers symbols of a library that was loaded with RTLD_GLOBAL before
`mlx.core`, so loading OpenBLAS first replaces the bundled one.
"""

import ctypes
import os
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

STOCK_BLAS = "reference BLAS (bundled with MLX)"
_NAMES = ("libopenblasp.so.0", "libopenblas.so.0", "libopenblas.so")  # serial builds come last


class _LoadsOpenBlas(MetaPathFinder):
    """Loads OpenBLAS when MLX is about to be imported; until then it takes no time."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "mlx.core":  # this finder stays: removing it now would skip the next one
            any(_load_library(name) == "" for name in _NAMES)


def choose_blas(choice: str) -> str:
    """Choose the BLAS that MLX gets when it is imported; MLX must not be imported yet.

    `choice` is "auto" for OpenBLAS if it is installed, "stock" for the bundled one, or the path of
    a library. Returns the problem with the choice, or "".
    """
    if choice == "stock":
        return ""
    if choice in ("auto", ""):
        sys.meta_path.insert(0, _LoadsOpenBlas())
        return ""
    problem = _load_library(choice)
    if problem:
        return (
            f"MLXSPEC_BLAS={choice!r} cannot be used ({problem}): set it to 'auto', to 'stock' "
            "or to the path of a BLAS library with the CBLAS interface"
        )
    return ""


def _load_library(name: str) -> str:
    try:
        library = ctypes.CDLL(name)  # first without RTLD_GLOBAL, which cannot be undone
        if not hasattr(library, "cblas_sgemm"):
            return "it has no cblas_sgemm"
        ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        return str(error)
    return ""


class _SymbolInfo(ctypes.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def loaded_blas() -> str:
    """Return the name of the BLAS that MLX calls in this process.

    The dynamic linker reports which library owns the first global `cblas_sgemm`. A list of loaded
    files would mislead: it also has NumPy's private BLAS, and the bundled one that MLX ignores.
    """
    if sys.platform == "darwin":
        return "Accelerate"
    process = ctypes.CDLL(None)
    if not hasattr(process, "cblas_sgemm"):
        return STOCK_BLAS
    info = _SymbolInfo()
    address = ctypes.cast(process.cblas_sgemm, ctypes.c_void_p)
    if not process.dladdr(address, ctypes.byref(info)) or not info.file:
        return "unknown BLAS"
    path = Path(os.fsdecode(info.file))
    if path.parent.name.startswith("mlx_"):
        return STOCK_BLAS
    return _openblas_words(path) or path.name


def _openblas_words(path: Path) -> str:
    library = ctypes.CDLL(str(path))
    if not hasattr(library, "openblas_get_config"):
        return ""
    get_config = library.openblas_get_config
    get_config.restype = ctypes.c_char_p
    words = get_config().decode(errors="replace").split()
    return f"{' '.join(words[:2])} ({path.name})"


def blas_threads() -> int:
    """Return how many threads OpenBLAS uses for a product; 0 if MLX calls another BLAS."""
    process = ctypes.CDLL(None)
    if not hasattr(process, "openblas_get_num_threads"):
        return 0
    return int(process.openblas_get_num_threads())


def set_blas_threads(count: int) -> None:
    """Let OpenBLAS use `count` threads for a product; another BLAS does not change."""
    process = ctypes.CDLL(None)
    if hasattr(process, "openblas_set_num_threads"):
        process.openblas_set_num_threads(count)
