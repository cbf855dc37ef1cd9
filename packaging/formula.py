"""Prints a formula for Homebrew that installs a wheel of mlxspec and all that uv.lock names.

`python packaging/formula.py dist/mlxspec-0.1.0-py3-none-any.whl https://HOST/OWNER/REPOSITORY`

Everything is installed from wheels, because MLX has no others. Where a package has one for each
system, as MLX does, the formula has one for each. Its address holds the hash of the wheel, so
it is made when a version is released, and not kept.
"""

import hashlib
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from string import Template
from typing import Any
from urllib.parse import urlsplit

from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).parents[1]
PYTHON = (3, 13)
EXTRAS = ("serve", "grammar")  # a formula has no extras of its own
SYSTEMS = {"sonoma": (14, 0), "sequoia": (15, 0), "tahoe": (26, 0)}  # the last one, or newer
MAC = {
    "extra": "",
    "implementation_name": "cpython",
    "platform_machine": "arm64",
    "platform_python_implementation": "CPython",
    "platform_system": "Darwin",
    "python_full_version": "{}.{}.0".format(*PYTHON),
    "python_version": "{}.{}".format(*PYTHON),
    "sys_platform": "darwin",
}

Package = dict[str, Any]  # a table of the lock file

FORMULA = Template("""\
class Mlxspec < Formula
  desc "Chat with local models on MLX, made faster by lossless drafts"
  homepage "$repository"
  url "$url", using: :nounzip
  sha256 "$sha256"
  license "MIT"

  depends_on arch: :arm64
  depends_on macos: :sonoma
  depends_on "python@$python"

  # Libraries of wheels find each other by @rpath, and have no room for longer names.
  preserve_rpath

$resources

  include Language::Python::Virtualenv

  def install
    resources.each { |resource| resource.stage { (buildpath/"wheels").install Dir["*.whl"] } }
    virtualenv_create(libexec, "python$python", system_site_packages: false)
    system "python$python", "-m", "pip", "--python=#{libexec}/bin/python", "install",
           "--no-deps", "--no-index", *Dir["wheels/*.whl"], *Dir["mlxspec-*.whl"]
    bin.install_symlink libexec/"bin/mlxspec"
    man1.install_symlink libexec/"share/man/man1/mlxspec.1"
    generate_completions_from_executable(libexec/"bin/mlxspec", "completion")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/mlxspec --version")
  end
end
""")


def needed(lock: Sequence[Package], environment: dict[str, str]) -> list[Package]:
    """Return the packages of a lock that mlxspec needs in an environment, by name."""
    found: dict[str, Package] = {}
    asked = {("mlxspec", extra) for extra in ("", *EXTRAS)}
    done: set[tuple[str, str]] = set()
    while asked:
        name, extra = key = asked.pop()
        done.add(key)
        package = found[name] = the(lock, name, environment)
        rows = package.get("optional-dependencies", {}).get(extra, [])
        for row in rows if extra else package.get("dependencies", []):
            if _holds(row.get("marker"), environment):
                asked |= {(row["name"], each) for each in ("", *row.get("extra", ()))} - done
    return [found[name] for name in sorted(found) if name != "mlxspec"]


def the(lock: Sequence[Package], name: str, environment: dict[str, str]) -> Package:
    """Return the one version of a package that an environment gets."""
    (package,) = (
        package
        for package in lock
        if package["name"] == name
        and any(_holds(m, environment) for m in package.get("resolution-markers", [None]))
    )
    return package


def _holds(marker: str | None, environment: dict[str, str]) -> bool:
    return not marker or Marker(marker).evaluate(environment)


def tags(system: tuple[int, int]) -> list[Tag]:
    """Return what wheels a system can use, best first."""
    platforms = list(mac_platforms(system, "arm64"))
    return [
        *cpython_tags(PYTHON, platforms=platforms),
        *compatible_tags(PYTHON, "cp313", platforms),
    ]


def wheel(package: Package, supported: Sequence[Tag]) -> Package:
    """Return the best wheel of a package."""
    rank = {tag: place for place, tag in enumerate(supported)}
    fitting: list[tuple[int, Package]] = []
    for row in package.get("wheels", []):
        fitting += [(rank[tag], row) for tag in _tags_of(row["url"]) if tag in rank]
    if not fitting:
        raise SystemExit(f"{package['name']} has no wheel for macOS: a formula cannot install it")
    return min(fitting, key=lambda pair: pair[0])[1]


def _tags_of(url: str) -> frozenset[Tag]:
    return parse_wheel_filename(PurePosixPath(urlsplit(url).path).name)[3]


def resources(packages: Sequence[Package]) -> Iterator[str]:
    """Yield the blocks of a formula for packages: one, or one for each system where they differ."""
    for package in packages:
        wheels = {name: wheel(package, tags(system)) for name, system in SYSTEMS.items()}
        blocks = {name: _block(package["name"], row) for name, row in wheels.items()}
        if len(set(blocks.values())) == 1:
            yield next(iter(blocks.values()))
            continue
        for name, text in blocks.items():
            newer = " :or_newer" if name == [*SYSTEMS][-1] else ""
            inner = text.replace("\n", "\n  ")
            yield f"  on_{name}{newer} do\n  {inner}\n  end"


def _block(name: str, row: Package) -> str:
    return (
        f'  resource "{name}" do\n'
        f'    url "{row["url"]}", using: :nounzip\n'
        f'    sha256 "{row["hash"].removeprefix("sha256:")}"\n'
        "  end"
    )


def formula(lock: Sequence[Package], path: Path, repository: str) -> str:
    """Return the formula for a wheel that a release of the repository holds."""
    version = parse_wheel_filename(path.name)[1]
    return FORMULA.substitute(
        repository=repository,
        url=f"{repository}/releases/download/v{version}/{path.name}",
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        python="{}.{}".format(*PYTHON),
        resources="\n\n".join(resources(needed(lock, MAC))),
    )


if __name__ == "__main__":
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    print(formula(lock, Path(sys.argv[1]), sys.argv[2].rstrip("/")), end="")
