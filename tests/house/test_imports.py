"""The direction of imports: every room stands on a floor and leans only on floors below.

A room is a folder of a package, or a file that lies beside its folders. The packages stand one on
the other as well: the library knows nobody, the app knows the library, the command line both. All
is read from the source of each module, so an import inside a function counts too.
"""

import ast
import re
from dataclasses import dataclass
from functools import cache

import pytest

from tests.house.sources import tree_of
from tests.support.paths import ROOT

# Packages and the rooms in them, lowest floor first; neighbours do not know each other.
FLOORS = {
    "mlxspec": [
        {"files"},
        {"errors", "params"},
        {"trace", "device"},
        {"text", "kv"},
        {"drafts", "models", "grammar", "tokenizer"},
        {"verify", "decoder", "adapted"},
        {"budget"},
        {"loading"},
        {"drafters", "distributed"},
        {"reply"},
        {"batch"},
        {"engine"},
        {"measure"},
        {"train", "drafting", "chat", "testing"},
        {"api"},
        {"compat", "bench"},
        {"__main__"},
    ],
    "mlxspec_app": [
        {"text", "themes"},
        {"conversation"},
        {"sessions", "playback", "picker", "user"},
        {"store", "settings", "export"},
        {"commands", "user_data", "frames"},
        {"app"},
        {"widgets"},
        {"screens"},
        {"run"},
        {"bench"},
    ],
    "mlxspec_server": [
        {"body", "settings", "feed", "page"},
        {"tools"},
        {"pieces", "shelf"},
        {"turns", "engine_thread"},
        {"asking"},
        {"writing"},
        {"apis"},
        {"answering"},
        {"server"},
        {"run"},
    ],
    "mlxspec_cli": [
        {"arguments", "output"},
        {"serve_options", "train_options"},
        {"parser"},
        {"main", "plain_chat", "manual", "chat_models"},
        {"__main__", "commands"},
    ],
}
PACKAGES = list(FLOORS)
HEAVY = {"mlx", "mlx_lm", "numpy", "transformers", "tokenizers", "safetensors", "shtab"}
HEAVY |= {"huggingface_hub"}
SHARED_BY_DRAFTERS = {"base", "network", "search"}
OF_SEVERAL = {"pool"}
BEFORE_THE_FIRST_FRAME = [
    "mlxspec.bench.mac_file",  # a report can be read where MLX is not installed
    "mlxspec_cli.main",
    "mlxspec_cli.parser",
    *(f"mlxspec_cli.commands.{name}" for name in ("chat", "replay", "race")),
    *(f"mlxspec_cli.{name}" for name in ("arguments", "output", "chat_models")),
]
SEEN_BY_THE_APP = {
    *("mlxspec.errors", "mlxspec.params", "mlxspec.files", "mlxspec.trace"),
    *("mlxspec.drafting.entries", "mlxspec.drafting.names"),
}


@dataclass(frozen=True)
class Import:
    """One imported name: where it stands, the module it comes from, and the name itself."""

    importer: str
    module: str
    name: str
    is_at_load: bool

    def __str__(self):
        return f"{self.importer} imports {self.name or 'all'} of {self.module}"


@cache
def modules():
    """{dotted name: path} of every module of the library and of the app."""
    found = {}
    for source in (ROOT, ROOT / "app"):
        for path in sorted(source.glob("mlxspec*/**/*.py")):
            parts = path.relative_to(source).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


@cache
def imports_of(name):
    return tuple(imports_in(name, tree_of(modules()[name])))


def statements(node, is_lazy=False):
    """Every statement below a node, and whether it stands in a function."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, block, ()):
            yield child, is_lazy
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from statements(child, is_lazy or is_function)


def imports_in(name, tree):
    """Every import of a module; `from package import submodule` is one of the submodule."""
    for node, is_lazy in statements(tree):
        if isinstance(node, ast.Import):
            pairs = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            pairs = [("." * node.level + (node.module or ""), alias.name) for alias in node.names]
        else:
            continue
        for module, imported in pairs:
            whole = f"{module}.{imported}"
            is_submodule = whole in modules()
            yield Import(
                importer=name,
                module=whole if is_submodule else module,
                name="" if is_submodule else imported,
                is_at_load=not is_lazy,
            )


@cache
def every_import():
    return [found for name in modules() for found in imports_of(name)]


def package_of(module):
    return module.split(".")[0]


def room_of(module):
    """The package and the folder or file in it; no folder for the package itself."""
    return tuple(module.split(".")[:2])


def floor_of(module):
    """A number that is lower for what stands lower; None for a package: anyone may ask it."""
    package, *inside = module.split(".")
    if not inside:
        return None
    floors = enumerate(FLOORS[package])
    level = next(level for level, rooms in floors if inside[0] in rooms)
    return PACKAGES.index(package), level


def breaches(imports):
    """The imports that do not lean on a lower floor or stay in their own room."""
    return [
        str(found)
        for found in imports
        if {package_of(found.importer), package_of(found.module)} <= set(PACKAGES)
        and None not in (floor_of(found.importer), floor_of(found.module))
        and room_of(found.importer) != room_of(found.module)
        and floor_of(found.importer) <= floor_of(found.module)
    ]


def room_in_drafters(module):
    """The folder or file of a module of `mlxspec.drafters`; empty for all others."""
    package, _, inside = module.partition("mlxspec.drafters.")
    return "" if package else inside.partition(".")[0]


def loaded_with(name):
    """Everything that is loaded when a module is, the packages above it included."""
    seen, waiting = set(), [name]
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        if module in modules():
            waiting += [found.module for found in imports_of(module) if found.is_at_load]
        waiting += [module.rpartition(".")[0]] if "." in module else []
    return seen


# ---- the floors ----------------------------------------------------------------------------


def test_there_is_something_to_check_and_a_load_is_followed_through_other_modules():
    assert {"mlxspec.engine.engine", "mlxspec_app.app"} <= set(modules())
    assert "mlxspec.decoder.decoder" in {f.module for f in imports_of("mlxspec.budget.cost")}
    assert "mlx.core" in loaded_with("mlxspec.verify.rules")
    assert "mlxspec.device.backend" in loaded_with("mlxspec.errors")


def test_every_room_has_one_floor_and_every_floor_has_rooms_that_exist():
    listed = [
        (package, room) for package in PACKAGES for floor in FLOORS[package] for room in floor
    ]
    there = {room_of(name) for name in modules() if "." in name}
    assert sorted(listed) == sorted(there)


def test_imports_lead_down():
    assert breaches(every_import()) == []


@pytest.mark.parametrize(
    ("importer", "line"),
    [
        ("mlxspec.drafters.suffix", "from mlxspec.engine.engine import Engine"),
        ("mlxspec.kv.cache", "from mlxspec.models.model import Model"),
        ("mlxspec.trace.events", "import mlxspec.kv.cache"),
        ("mlxspec.models.config", "def read():\n    from mlxspec.decoder import decoder"),
        ("mlxspec.api", "from mlxspec_app.text import wrap"),
        ("mlxspec_app.app", "from mlxspec_cli import main"),
        ("mlxspec_app.text.wrap", "from mlxspec_app.conversation.fold import apply"),
    ],
)
def test_an_import_that_leads_up_or_sideways_would_be_seen(importer, line):
    assert len(breaches(imports_in(importer, ast.parse(line)))) == 1


# ---- what nothing may do -------------------------------------------------------------------


def test_a_method_of_drafting_knows_no_other_one_and_what_they_share_knows_none():
    between = [
        str(found)
        for found in every_import()
        if (above := room_in_drafters(found.importer)) not in {"", *OF_SEVERAL}
        and (below := room_in_drafters(found.module)) not in {"", *SHARED_BY_DRAFTERS}
        and above != below
    ]
    assert between == []


WHICH_CPU = re.compile(
    r"platform\.(machine|processor)|mx\.(metal|cuda|device_info|default_device)|device\.cpu\b"
    r"|lacks_accelerate|core_split\.count"
)
TELL_OF_THE_MACHINE = ("mlxspec.device", "mlxspec.bench.mac", "mlxspec_app.bench")


def test_only_the_device_room_asks_which_processor_this_is():
    """Others ask it what to do: the reports of a machine alone tell what it is."""
    asking = {
        name: found.group()
        for name, path in modules().items()
        if not name.startswith(TELL_OF_THE_MACHINE)
        and (found := WHICH_CPU.search(path.read_text()))
    }
    assert asking == {}


def test_imports_are_absolute_name_by_name_and_of_public_names():
    bad = [
        str(found)
        for found in every_import()
        if found.module.startswith((".", "mlxspec"))
        and (found.module.startswith(".") or found.name.startswith(("*", "_")))
        and found.name != "__version__"
    ]
    assert bad == []


# ---- without MLX ---------------------------------------------------------------------------


def is_seen_by_the_app(module):
    return not SEEN_BY_THE_APP.isdisjoint({module, ".".join(room_of(module))})


def test_events_and_their_readers_import_no_mlx_even_when_asked():
    heavy = [
        str(found)
        for found in every_import()
        if is_seen_by_the_app(found.importer) and package_of(found.module) in HEAVY
    ]
    assert heavy == []


def test_the_app_and_what_runs_before_its_first_frame_load_without_mlx():
    light = [
        "mlxspec",
        *filter(is_seen_by_the_app, modules()),
        *(name for name in modules() if package_of(name) == "mlxspec_app"),
        *BEFORE_THE_FIRST_FRAME,
    ]
    heavy = {
        name: found
        for name in light
        if (found := HEAVY & {package_of(module) for module in loaded_with(name)})
    }
    assert heavy == {}


def test_the_front_door_opens_without_what_only_the_app_and_other_loaders_need():
    loaded = {package_of(module) for module in loaded_with("mlxspec.api")}
    assert {"mlx", "transformers"} <= loaded
    assert not {"textual", "tomlkit", "mlx_lm"} & loaded


def test_the_package_prepares_the_process_before_any_module_imports_mlx():
    """Every import of a module of mlxspec runs the package first; it loads `backend` alone."""
    body = tree_of(modules()["mlxspec"]).body
    calls = [ast.unparse(node) for node in body if isinstance(node, ast.Expr)]
    assert "backend.prepare()" in calls
    loaded = {module for module in loaded_with("mlxspec") if package_of(module) == "mlxspec"}
    device = {f"mlxspec.device{name}" for name in ("", ".backend", ".blas")}
    assert loaded <= {"mlxspec", "mlxspec.errors", *device}


def test_the_app_sees_events_and_public_names_only():
    public = ast.literal_eval(
        next(
            node.value
            for node in tree_of(modules()["mlxspec"]).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_PUBLIC"
        )
    )
    beyond = [
        str(found)
        for found in every_import()
        if package_of(found.importer) == "mlxspec_app"
        and package_of(found.module) == "mlxspec"
        and not is_seen_by_the_app(found.module)
        and not (found.module == "mlxspec" and found.name in {"", "__version__", *public})
    ]
    assert beyond == []
