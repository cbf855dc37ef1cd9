"""Real clients against a real server: what they ask, streamed and not, and what they are told.

    python -m tests.campaigns.clients                    starts a server of the default model
    python -m tests.campaigns.clients --only openai_python
    python -m tests.campaigns.clients --out FILE         writes the transcripts there

The packages come from PyPI and npm into a folder outside the repository, where they stay for the
next run. Each program of `client_programs` compares what it is told streamed and whole. Ends with 1
if one of them fails.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from tests.campaigns.serving.servers import served

PROGRAMS = Path(__file__).parent / "client_programs"
PYTHON_PACKAGES = ("openai", "anthropic")
NODE_PACKAGES = ("openai", "ai", "@ai-sdk/openai-compatible")
FOLDER = Path(tempfile.gettempdir()) / "mlxspec-clients"


def main() -> int:
    args = _parser().parse_args()
    python = _python(args.folder)
    node = _node(args.folder)
    print(f"clients are in {args.folder}", file=sys.stderr)
    is_good, lines = True, ["# Clients against `mlxspec serve`"]
    with served(["--max-tokens", "200"]) as server:
        where = {"MLXSPEC_URL": server.url, "MLXSPEC_MODEL": server.model}
        for program in sorted(PROGRAMS.iterdir()):
            if program.stem in (args.only or [program.stem]):
                command = _command(program, python, node, args.folder)
                ok, said = _said(command, where)
                is_good &= ok
                lines += ["", f"## {program.stem}: {'good' if ok else 'FAILED'}", "", said]
                print(lines[-3], file=sys.stderr)
    text = "\n".join(lines) + "\n"
    args.out.write_text(text) if args.out else print(text)
    return 0 if is_good else 1


def _parser() -> argparse.ArgumentParser:
    how = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=how)
    names = [program.stem for program in sorted(PROGRAMS.iterdir()) if program.is_file()]
    parser.add_argument("--only", action="append", choices=names, help="one of the programs")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the transcripts there")
    text = f"where the packages are kept ({FOLDER})"
    parser.add_argument("--folder", type=Path, default=FOLDER, help=text)
    return parser


def _python(folder: Path) -> Path:
    """Return the Python of an environment that has the packages."""
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        venv.create(folder / "venv", with_pip=True)
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*command, *PYTHON_PACKAGES], check=True)
    return python


def _node(folder: Path) -> str | None:
    """Return Node with the packages installed, or None where there is no Node."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        print("no node and npm here: their clients are left out", file=sys.stderr)
        return None
    own = folder / "npm"
    own.mkdir(parents=True, exist_ok=True)
    if not all((own / "node_modules" / name).is_dir() for name in NODE_PACKAGES):
        subprocess.run([npm, "install", "--silent", *NODE_PACKAGES], cwd=own, check=True)
    return node


def _command(program: Path, python: Path, node: str | None, folder: Path) -> list[str] | None:
    if program.suffix == ".py":
        return [str(python), str(program)]
    if node is None:
        return None
    beside = folder / "npm" / program.name  # modules are looked for from the file on
    shutil.copyfile(program, beside)
    return [node, str(beside)]


def _said(command: list[str] | None, where: dict[str, str]) -> tuple[bool, str]:
    if command is None:
        return True, "left out"
    begin = time.monotonic()
    done = subprocess.run(
        command, env={**os.environ, **where}, capture_output=True, text=True, timeout=900
    )
    said = done.stdout if done.returncode == 0 else f"{done.stdout}\n{done.stderr}"
    seconds = time.monotonic() - begin
    return done.returncode == 0, f"```text\n{said.strip()}\n```\n\n{seconds:.0f} s."


if __name__ == "__main__":
    sys.exit(main())
