"""Runs the command line, and writes down what its own process uses: only it can tell all of that.

python -m tests.campaigns.serving.inside FILE SECONDS ARGUMENT...
"""

import ctypes
import json
import sys
import threading
import time
from pathlib import Path

import mlx.core as mx

_MB = 1e6


class _Heap(ctypes.Structure):
    """What glibc's `mallinfo2` tells of all its arenas, in bytes."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def use() -> dict[str, float]:
    """Return the memory of this process in MB, by who holds it.

    `malloc_held_mb` is freed memory that glibc has not given back, `python_mb` what lies outside of
    glibc's heap: most of it the arenas of Python's small objects.
    """
    heap = _heap()
    lines = Path("/proc/self/status").read_text().splitlines()
    sizes = {name: int(rest.split()[0]) / 1e3 for name, _, rest in _fields(lines)}
    malloc = (heap.arena + heap.hblkhd) / _MB
    return {
        "rss_mb": sizes["VmRSS"] * 1.024,
        "anonymous_mb": sizes["RssAnon"] * 1.024,
        "malloc_used_mb": (heap.uordblks + heap.hblkhd) / _MB,
        "malloc_held_mb": heap.fordblks / _MB,
        "malloc_mb": malloc,
        "mlx_active_mb": mx.get_active_memory() / _MB,
        "mlx_cache_mb": mx.get_cache_memory() / _MB,
        "blocks": sys.getallocatedblocks(),
        "threads": threading.active_count(),
    }


def _fields(lines):
    for line in lines:
        name, mark, rest = line.partition(":")
        if rest.endswith("kB"):
            yield name, mark, rest


def _heap() -> _Heap:
    tell = ctypes.CDLL(None).mallinfo2
    tell.restype = _Heap
    return tell()


def _write(file: Path, every_s: float) -> None:
    begin = time.monotonic()
    with file.open("a", encoding="utf-8") as out:
        while True:
            sample = {"seconds": round(time.monotonic() - begin, 1), **use()}
            out.write(json.dumps(sample) + "\n")
            out.flush()
            time.sleep(every_s)


if __name__ == "__main__":
    file, every_s, *arguments = sys.argv[1:]
    threading.Thread(target=_write, args=(Path(file), float(every_s)), daemon=True).start()
    from mlxspec_cli.main import main

    sys.exit(main(arguments))
