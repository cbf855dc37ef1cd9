"""Puts the manual page into the wheel, printed from the parser while the wheel is built."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManualPage(BuildHookInterface[Any]):
    """Writes `share/man/man1/mlxspec.1` of the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path[:0] = [self.root, f"{self.root}/app"]
        from mlxspec_cli.commands.man import man_page
        from mlxspec_cli.parser import build_parser

        page = Path(self.directory, "mlxspec.1")
        page.parent.mkdir(exist_ok=True)
        page.write_text(man_page(build_parser()) + "\n", encoding="utf-8")
        build_data["shared_data"][str(page)] = "share/man/man1/mlxspec.1"
