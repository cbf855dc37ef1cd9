"""Checks whether MLX can run on this machine, before pip says "no matching distribution".

`python -I mlxspec/device/machine_check.py` prints the problem and what to do, and exits with 1; if
MLX can run, it prints nothing. It runs before anything is installed, with any Python 3, so it
imports only the standard library, nothing of mlxspec, and uses the syntax of Python 3.6.
"""

import os
import platform
import subprocess
import sys
from typing import NamedTuple

OLDEST_PYTHON = (3, 11)
OLDEST_MACOS = 14
OLDEST_GLIBC = (2, 35)
_APPLE_KEYS = ("hw.optional.arm64", "sysctl.proc_translated")  # 1 under Rosetta too
_LINUX_MACHINES = ("x86_64", "amd64", "aarch64", "arm64")


class MachineFacts(NamedTuple):
    """The facts that decide whether there is an MLX for a Python."""

    system: str
    machine: str  # that this Python was built for, such as "arm64"
    python: "tuple[int, ...]"
    macos: str = ""
    has_apple_chip: bool = False  # also under Rosetta
    libc: str = ""  # such as "glibc 2.36"


def machine_facts() -> MachineFacts:
    """Return the facts of this machine."""
    is_mac = platform.system() == "Darwin"
    return MachineFacts(
        system=platform.system(),
        machine=platform.machine(),
        python=tuple(sys.version_info[:2]),
        macos=_macos() if is_mac else "",
        has_apple_chip=is_mac and any(_answer("sysctl", "-n", key) == "1" for key in _APPLE_KEYS),
        libc=_libc(),
    )


def problem(found: MachineFacts) -> str:
    """Return why MLX cannot run here and what to do, in a sentence or two; "" if it can."""
    if found.system == "Darwin":
        reason = _problem_of_mac(found)
    elif found.system == "Linux":
        reason = _problem_of_linux(found)
    else:
        reason = (
            f"{found.system or 'this system'} has no MLX: use a Mac with Apple Silicon, or Linux "
            "(on Windows that may be WSL 2)"
        )
    return reason or _problem_of_python(found)


def _problem_of_mac(found: MachineFacts) -> str:
    if not found.has_apple_chip and found.machine != "arm64":
        return (
            "this Mac has an Intel processor, for which there is no MLX: use a Mac with Apple "
            "Silicon, or Linux"
        )
    if found.machine != "arm64":
        return (
            f"this Python is built for Intel ({found.machine}) and runs translated by Rosetta, for "
            "which there is no MLX: install Python for Apple Silicon from python.org or with "
            "/opt/homebrew/bin/brew, in a terminal that is not opened with Rosetta, and name it: "
            "make PYTHON=/path/to/python3"
        )
    number = found.macos.split(".")[0]
    if number.isdigit() and int(number) < OLDEST_MACOS:
        return (
            f"macOS {found.macos} is too old for MLX: update it to {OLDEST_MACOS} or later in "
            "System Settings, General, Software Update"
        )
    return ""


def _problem_of_linux(found: MachineFacts) -> str:
    if found.machine.lower() not in _LINUX_MACHINES:
        return f"there is no MLX for Linux on {found.machine}: use x86-64 or aarch64"
    name, _, version = found.libc.partition(" ")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if name == "glibc" and numbers >= OLDEST_GLIBC:
        return ""
    return (
        f"there is no MLX for the C library of this Linux ({found.libc or 'not glibc'}): use one "
        f"with glibc {'.'.join(map(str, OLDEST_GLIBC))} or later, such as Debian 12 or Ubuntu 22.04"
    )


def _problem_of_python(found: MachineFacts) -> str:
    if found.python >= OLDEST_PYTHON:
        return ""
    return (
        f"Python {'.'.join(map(str, OLDEST_PYTHON))} or later is needed, and this is "
        f"{'.'.join(map(str, found.python))}: install it from python.org or with your package "
        "manager, or name it: make PYTHON=/path/to/python3"
    )


def _macos() -> str:
    """Return the version of macOS; an old Python itself sees 10.16 for every later version."""
    return _answer("sw_vers", "-productVersion") or platform.mac_ver()[0]


def _libc() -> str:
    """Return the C library's name and version; `platform.libc_ver` of an older Python guesses."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, OSError, ValueError):  # macOS, and musl
        return ""


def _answer(*command: str) -> str:
    """Return the output of a system command; "" if the command fails."""
    try:
        answer = subprocess.check_output(
            command, stderr=subprocess.DEVNULL, env={**os.environ, "SYSTEM_VERSION_COMPAT": "0"}
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return answer.decode(errors="replace").strip()


if __name__ == "__main__":
    said = problem(machine_facts())
    if said:
        sys.exit(f"mlxspec cannot be set up: {said}")
