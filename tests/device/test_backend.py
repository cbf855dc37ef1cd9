"""Which BLAS MLX reaches, told by the dynamic linker; and what the process is set up with."""

import ctypes
import importlib.util
import os
import platform
import subprocess
import sys
from ctypes.util import find_library
from types import SimpleNamespace

import mlx.core as mx
import pytest

from mlxspec.device import backend
from mlxspec.device.blas import STOCK_BLAS, choose_blas, loaded_blas

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the BLAS is chosen on Linux only")
PRINT_BLAS = "from mlxspec.device import backend; print(backend.facts().blas)"
PRINT_NOTES = "from mlxspec.device import backend; print(*backend.facts().notes)"


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter."""
    clean = {name: value for name, value in os.environ.items() if name != "MLXSPEC_BLAS"}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=clean | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def printed(code: str, **environment: str) -> str:
    result = run(code, **environment)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def bound_library(tmp_path, **environment: str) -> str:
    """The file to which the dynamic linker bound MLX's matrix product."""
    log = {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(tmp_path / "bindings")}
    printed(PRINT_BLAS, **log, **environment)
    for path in tmp_path.glob("bindings.*"):
        for line in path.read_text(errors="replace").splitlines():
            if "libmlx.so" in line and "`cblas_sgemm'" in line:
                return line.split(" to ")[1].split(" [")[0]
    raise AssertionError("the linker bound no cblas_sgemm for MLX")


needs_openblas = pytest.mark.skipif(
    sys.platform != "linux" or find_library("openblas") is None, reason="OpenBLAS is not installed"
)


@on_linux
def test_stock_is_what_the_linker_binds_to(tmp_path):
    assert "mlx" in bound_library(tmp_path, MLXSPEC_BLAS="stock")
    assert printed(PRINT_BLAS, MLXSPEC_BLAS="stock") == STOCK_BLAS


@needs_openblas
def test_openblas_is_what_the_linker_binds_to_and_a_library_may_be_named(tmp_path):
    assert "openblas" in bound_library(tmp_path)
    assert printed(PRINT_BLAS, MLXSPEC_BLAS=find_library("openblas")).startswith("OpenBLAS")


@on_linux
@pytest.mark.parametrize("choice", ["no/such/library.so", sys.executable])
def test_a_wrong_choice_is_a_bad_value_at_first_use_and_not_before(choice):
    result = run(PRINT_NOTES + "; backend.check()", MLXSPEC_BLAS=choice)
    assert choice in result.stdout
    assert f"BlasChoiceError: MLXSPEC_BLAS={choice!r} cannot be used" in result.stderr
    assert issubclass(backend.BlasChoiceError, ValueError)


@on_linux
def test_a_library_without_matrix_products_is_refused():
    notes = printed(PRINT_NOTES, MLXSPEC_BLAS="libm.so.6")
    assert "it has no cblas_sgemm" in notes


@on_linux
def test_who_watches_imports_sees_that_of_mlx_too(monkeypatch):
    """Finders are asked in turn: one that leaves while it is asked hides the next one."""
    asked = []
    watcher = SimpleNamespace(find_spec=lambda name, *_: asked.append(name))
    monkeypatch.setattr(sys, "meta_path", [watcher, *sys.meta_path])
    monkeypatch.delitem(sys.modules, "mlx.core")
    assert choose_blas("auto") == ""
    assert importlib.util.find_spec("mlx.core") is not None
    assert asked == ["mlx.core"]


def test_mlx_imported_first_keeps_its_own_blas_and_that_is_said():
    code = "import mlx.core; " + PRINT_BLAS + "; print(*backend.facts().notes)"
    blas, notes = printed(code).split("\n")
    assert blas == STOCK_BLAS
    assert "import mlxspec first" in notes


WITHOUT_MLX = "import sys; sys.modules['mlx'] = sys.modules['mlx.core'] = None; "


def test_facts_need_no_mlx_and_a_model_does():
    use = "from mlxspec.device import backend; f = backend.facts(); print(f.backend, f.cores)"
    result = run(f"{WITHOUT_MLX}{use}; backend.check()")
    assert result.stdout.strip() == f"none {backend.facts().cores}"
    assert "MlxspecError: MLX cannot be imported" in result.stderr


def test_importing_mlxspec_imports_no_mlx():
    assert printed("import sys, mlxspec; print('mlx.core' in sys.modules)") == "False"


def test_facts_are_those_of_this_machine():
    facts = backend.facts()
    assert facts.mlx == mx.__version__
    assert facts.python == platform.python_version()
    assert facts.blas == (loaded_blas() if facts.backend == "cpu" else "")
    assert 1 <= facts.cores <= os.cpu_count()
    assert 0.5 < facts.memory_gb < 10_000


# ---- Metal -------------------------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch):
    """A backend that was not prepared yet, on a Mac."""
    monkeypatch.setattr(backend, "_state", backend._State())
    monkeypatch.setattr(sys, "platform", "darwin")
    for name in ("MLX_MAX_OPS_PER_BUFFER", "MLX_MAX_MB_PER_BUFFER"):
        monkeypatch.setenv(name, "")  # so that what `prepare` sets is taken back
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("own", "operations", "megabytes"),
    [
        ({}, "200", None),
        ({"MLX_MAX_OPS_PER_BUFFER": "7"}, "7", None),
        ({"MLX_MAX_MB_PER_BUFFER": "7"}, "200", "7"),
    ],
)
def test_command_buffers_of_a_mac_hold_more_operations_and_no_more_bytes(
    fresh, monkeypatch, own, operations, megabytes
):
    monkeypatch.setattr(backend, "memory_gb", lambda: 64.0)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    backend.prepare()
    assert os.environ["MLX_MAX_OPS_PER_BUFFER"] == operations
    assert os.environ.get("MLX_MAX_MB_PER_BUFFER") == megabytes


# ---- float32 -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(None, "0"), ("0", "0"), ("1", "1")])
def test_products_keep_all_bits_of_float32_unless_the_user_wants_it_otherwise(
    monkeypatch, before, after
):
    monkeypatch.setattr(backend, "_state", backend._State(late=True))
    monkeypatch.setenv("MLX_ENABLE_TF32", before or "")  # so that what `prepare` sets is taken back
    if before is None:
        monkeypatch.delenv("MLX_ENABLE_TF32")
    backend.prepare()
    assert os.environ["MLX_ENABLE_TF32"] == after


@pytest.mark.parametrize("kind", ["cpu", "metal", "cuda"])
def test_a_gpu_that_rounds_drafted_rounds_more_is_told(monkeypatch, kind):
    monkeypatch.setattr(backend, "_device", lambda: ("a device", kind))
    assert not any("MLX_ENABLE_TF32" in note for note in backend.facts().notes)
    monkeypatch.setenv("MLX_ENABLE_TF32", "1")
    assert any("MLX_ENABLE_TF32" in note for note in backend.facts().notes) == (kind != "cpu")


# ---- counters ----------------------------------------------------------------------------------


def test_every_wait_for_the_device_is_counted():
    before = backend.host_syncs()
    array = mx.arange(3) * 2
    backend.sync(array)
    backend.sync(array, array + 1)
    assert backend.host_syncs() - before == 2


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc trims")
def test_memory_that_was_freed_goes_back_to_the_system():
    program = """
import os, mlxspec
import mlx.core as mx
from mlxspec.device.memory import give_back_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

arrays, between = [mx.zeros(25_000) + 1 for _ in range(1000)], []
for array in arrays:  # in pieces that lie between others which stay
    mx.eval(array)
    between.append(bytes(5000))
del array, arrays
before = resident()
give_back_memory()
print(before - resident())
"""
    assert float(printed(program)) > 60
