"""The direction of imports: every module stands on a floor and leans only on floors below.

Read from the source of each module, so an import inside a function counts as well.
"""

import ast
from dataclasses import dataclass
from functools import cache

import pytest

from tests.support.paths import ROOT

FLOORS = [  # files and packages of mlxspec, lowest first; neighbours do not know each other
    {"errors", "checks", "near_tie"},
    {"events", "blas", "text", "prefix", "prompt", "proof", "law", "machine_check"},
    {"backend", "stats", "trace", "params", "turns"},
    {"options", "memory", "rows", "tree", "draws", "traversal", "exponential", "lanes"},
    {"cache", "branching", "sampling", "processing", "hidden", "noise"},
    {"draft"},
    {"masks", "verify"},
    {"models"},
    {"forwards", "loading", "readout"},
    {"decoder"},
    {"drafters", "reply", "cost", "budget", "drift"},
    {"reporting", "guard"},
    {"batch", "writer"},
    {"engine"},
    {"choosing", "proving"},
    {"conversation"},
    {"api"},
    {"compat", "doctor", "train", "bench"},
    {"checking"},
    {"report", "testing"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
HEAVY = {"mlx", "mlx_lm", "numpy", "transformers", "tokenizers", "safetensors", "huggingface_hub"}
SHARED_BY_DRAFTERS = {
    "base",
    "growth",
    "automaton",
    "calibration",
    "table_counts",
    "table_file",
    "table_memory",
    "table_rows",
    "beam",
    "draft_law",
    "reduced_head",
    "rank_paths",
    "rank_tree",
    "medusa_heads",
    "exit_network",
    "eagle_base",
    "eagle_history",
    "eagle_network",
}
BEFORE_THE_FIRST_FRAME = [
    "mlxspec_cli.main",
    *(
        f"mlxspec_cli.commands.{name}"
        for name in ("chat", "replay", "race", "options", "adjusting")
    ),
]
SEEN_BY_THE_APP = {"errors", "events", "proof", "stats", "trace"}


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
    return tuple(imports_in(name, modules()[name].read_text()))


def imports_in(name, source):
    """Every import of a module; `from package import submodule` is one of the submodule."""
    tree = ast.parse(source)
    lazy = {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(outer)
    }
    for node in ast.walk(tree):
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
                is_at_load=id(node) not in lazy,
            )


def every_import():
    return [found for name in modules() for found in imports_of(name)]


def floor_of(module):
    """The floor of a module of mlxspec; None for the package itself, which anyone may ask."""
    parts = module.split(".")
    if len(parts) == 1:
        return None
    return next(level for level, rooms in enumerate(FLOORS) if parts[1] in rooms)


def room_of(module):
    return module.split(".")[:2]


def is_library(module):
    return module.split(".")[0] == "mlxspec"


def breaches(imports):
    """The imports that do not lean on a lower floor or stay in their own package."""
    return [
        str(found)
        for found in imports
        if is_library(found.importer)
        and is_library(found.module)
        and None not in (floor_of(found.importer), floor_of(found.module))
        and room_of(found.importer) != room_of(found.module)
        and floor_of(found.importer) <= floor_of(found.module)
    ]


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


def test_there_is_something_to_check():
    assert {
        "mlxspec.engine.engine",
        "mlxspec.drafters.base",
        "mlxspec_app.sessions.engine_session",
    } <= set(modules())
    assert any(
        found.module == "mlxspec.target.decoder" for found in imports_of("mlxspec.budget.cost")
    )


@pytest.mark.parametrize("name", [name for name in modules() if is_library(name)])
def test_every_module_has_a_floor(name):
    rooms = set().union(*FLOORS)
    assert name == "mlxspec" or name.split(".")[1] in rooms, f"give {name} a floor in FLOORS"


def test_imports_lead_down():
    assert breaches(every_import()) == []


@pytest.mark.parametrize(
    ("importer", "line"),
    [
        ("mlxspec.drafters.suffix.drafter", "from mlxspec.engine.engine import Engine"),
        ("mlxspec.kv.cache", "from mlxspec.models.model import Model"),
        ("mlxspec.trace.events", "import mlxspec.trace.stats"),
        ("mlxspec.models.llama", "def read():\n    from mlxspec import decoder"),
        ("mlxspec.trace.stats", "from mlxspec.device.backend import facts"),
    ],
)
def test_an_import_that_leads_up_or_sideways_would_be_seen(importer, line):
    assert len(breaches(imports_in(importer, line))) == 1


# ---- what nothing may do -------------------------------------------------------------------


def test_nothing_but_main_imports_the_command_line():
    importers = {found.importer for found in every_import() if found.module == "mlxspec_cli.main"}
    assert importers <= {"mlxspec.__main__"}


def test_only_a_command_imports_the_app():
    importers = {
        found.importer
        for found in every_import()
        if is_library(found.importer) and found.module.split(".")[0] == "mlxspec_app"
    }
    assert all(name.startswith("mlxspec_cli.commands.") for name in importers)


def test_drafters_do_not_import_each_other():
    shared = {f"mlxspec.drafters.{name}" for name in SHARED_BY_DRAFTERS}
    methods = {name for name in modules() if name.startswith("mlxspec.drafters.")} - shared
    between = [
        str(found)
        for name in methods - {"mlxspec.drafters.pool"}
        for found in imports_of(name)
        if found.module in methods
    ]
    assert between == []


def test_what_drafters_share_imports_no_drafter():
    shared = {f"mlxspec.drafters.{name}" for name in SHARED_BY_DRAFTERS} & set(modules())
    beyond = [
        str(found)
        for name in shared
        for found in imports_of(name)
        if found.module.startswith("mlxspec.drafters.") and found.module not in shared
    ]
    assert beyond == []


def test_imports_are_absolute_name_by_name_and_of_public_names():
    ours = [found for found in every_import() if found.module.startswith((".", "mlxspec"))]
    bad = [
        str(found)
        for found in ours
        if found.module.startswith(".")
        or found.name == "*"
        or (found.name.startswith("_") and found.name != "__version__")
    ]
    assert bad == []


# ---- without MLX ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(SEEN_BY_THE_APP))
def test_events_and_their_readers_import_no_mlx_even_when_asked(name):
    everything = {found.module.split(".")[0] for found in imports_of(f"mlxspec.{name}")}
    assert not everything & HEAVY


@pytest.mark.parametrize(
    "name",
    [
        "mlxspec",
        *(f"mlxspec.{name}" for name in sorted(SEEN_BY_THE_APP)),
        *(name for name in modules() if name.startswith("mlxspec_app")),
        *BEFORE_THE_FIRST_FRAME,
    ],
)
def test_loads_without_mlx(name):
    loaded = {module.split(".")[0] for module in loaded_with(name)}
    assert not loaded & HEAVY


def test_a_load_is_followed_through_other_modules():
    assert "mlx.core" in loaded_with("mlxspec.verify.rules")
    assert "mlxspec.device.backend" in loaded_with("mlxspec.errors")


def test_the_package_prepares_the_process_before_any_module_imports_mlx():
    """Every import of a module of mlxspec runs the package first; it loads `backend` alone."""
    body = ast.parse(modules()["mlxspec"].read_text()).body
    calls = [ast.unparse(node) for node in body if isinstance(node, ast.Expr)]
    assert "backend.prepare()" in calls
    loaded = {module for module in loaded_with("mlxspec") if is_library(module)}
    assert loaded <= {"mlxspec", "mlxspec.device.backend", "mlxspec.device.blas", "mlxspec.errors"}


def test_the_app_sees_events_and_public_names_only():
    public = ast.literal_eval(
        next(
            node.value
            for node in ast.parse(modules()["mlxspec"].read_text()).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_PUBLIC"
        )
    )
    allowed = {f"mlxspec.{name}" for name in SEEN_BY_THE_APP}
    beyond = [
        str(found)
        for found in every_import()
        if not is_library(found.importer)
        and is_library(found.module)
        and found.module not in allowed
        and not (found.module == "mlxspec" and found.name in {"", "__version__", *public})
    ]
    assert beyond == []
