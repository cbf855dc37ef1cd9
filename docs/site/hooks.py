"""The pages of the site that lie elsewhere in the repository, and those that a command makes."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
KEPT = (
    "*.md",
    "LICENSE",
    "app/llm_mlxspec/README.md",
    "assets/*.svg",
    "assets/*/README.md",
    "docs/*.md",
    "docs/examples/*.py",
)
RUNS = ("assets/code-plain.jsonl", "assets/code.jsonl")
WRITTEN = {  # by commands that need neither a model nor MLX
    "chat.html": ("export", "assets/chat.jsonl", "--html"),
    "race.html": ("race", *RUNS, "--html"),
}
MANUAL = "docs/manual.md"
SCRIPTS = "docs/examples/README.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages under the names that they have in the repository."""
    for path in kept():
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    with TemporaryDirectory() as folder:
        for name, arguments in WRITTEN.items():
            said(*arguments, f"{folder}/{name}")
            page = Path(folder, name).read_bytes()
            files.append(File.generated(config, name, content=page))
    files.append(File.generated(config, MANUAL, content=said("man", "--markdown")))
    files.append(File.generated(config, SCRIPTS, content=scripts()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let a link to the folder of scripts lead to their page."""
    return markdown.replace("](examples)", "](examples/README.md)")


def kept() -> Iterator[Path]:
    """Yield the files of the repository that are pages or pictures of the site."""
    old = ROOT / MANUAL  # of `make docs`; here it is printed anew
    return (path for pattern in KEPT for path in sorted(ROOT.glob(pattern)) if path != old)


def said(*arguments: str) -> str:
    """Return what a command of mlxspec prints."""
    command = (str(Path(sys.executable).with_name("mlxspec")), *arguments)
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def scripts() -> str:
    """Return a page with all scripts of docs/examples."""
    parts = ["# Scripts\n\nEach does one thing, and the tests run all of them.\n"]
    for path in sorted((ROOT / "docs" / "examples").glob("*.py")):
        parts.append(f"## {path.name}\n\n```python\n{path.read_text(encoding='utf-8')}```\n")
    return "\n".join(parts)
