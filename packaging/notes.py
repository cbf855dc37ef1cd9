"""Prints what CHANGELOG.md says of the version that a tag names: `packaging/notes.py v0.1.0`."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def version() -> str:
    """Return the version that the package has."""
    source = (ROOT / "mlxspec" / "__init__.py").read_text(encoding="utf-8")
    (written,) = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    return str(written)


def notes(changelog: str, tag: str, version: str) -> str:
    """Return the part of a changelog for a tag, which has to name the version of the package."""
    if tag != f"v{version}":
        raise SystemExit(
            f"the tag is {tag}, and the package has version {version}: tag it v{version}, "
            "or change __version__ in mlxspec/__init__.py"
        )
    parts = re.split(r"^## (.+)\n", changelog, flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True)).get(version, "").strip()
    if not found:
        raise SystemExit(
            f'CHANGELOG.md says nothing under "## {version}": '
            'move what is under "## Unreleased" there'
        )
    return found


if __name__ == "__main__":
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    print(notes(changelog, sys.argv[1], version()))
