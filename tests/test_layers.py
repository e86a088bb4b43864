"""The map of the house, and that every import keeps to it."""

import ast
import subprocess
import sys
from pathlib import Path

import ostinato

ROOT = Path(ostinato.__file__).parent

MAP: dict[str, set[str]] = {
    "records": set(),
    "store": {"records"},
    "weights": {"records"},
    "render": {"records"},
    "model": {"records"},
    "search": {"records"},
    "feedback": {"records"},
    "envs.client": {"records"},
    "loopback": {"records"},
    "envs": {"records", "search", "envs.client", "loopback"},
    "gateway": {"records", "store", "render", "weights", "loopback"},
    "engine": {"records", "weights", "render", "model", "loopback"},
    "rewards": {"records", "store", "render", "envs.client"},
    "agent": {"records", "render", "search", "feedback", "envs.client"},
    "trainer": {"records", "store", "weights", "model", "render"},
    "episodes": {"records", "agent", "envs.client", "rewards", "store", "weights"},
    "evals": {"records", "episodes", "agent", "rewards", "envs.client", "store", "weights"},
    "deploy": {"records", "store", "weights", "evals"},
    "dashboard": {"records", "rewards", "store", "weights", "render"},
    "tinyworld": {"records", "agent", "feedback", "envs.client", "search"},
    "tinyworld.recipe": {"records", "agent", "tinyworld", "model", "trainer", "render", "weights"},
}
SUBROOMS = ("envs.client", "tinyworld.recipe")
TORCH_ROOMS = {"model", "engine", "trainer", "tinyworld.recipe"}


def room_of(module: str) -> str | None:
    """The room in which a dotted module name below `ostinato` lies; None for the top modules and the package."""
    inner = module.removeprefix("ostinato").removeprefix(".")
    for sub in SUBROOMS:
        if inner == sub or inner.startswith(f"{sub}."):
            return sub
    first = inner.split(".")[0]
    return first if first in MAP else None


def imports_of(path: Path) -> list[str]:
    """Every absolute module name that a file imports, at any depth; relative imports are resolved."""
    package = ".".join(("ostinato", *path.relative_to(ROOT).parts[:-1]))
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parts, base] if base else parts)
            found += [f"{base}.{alias.name}" if base == "ostinato" else base for alias in node.names]
    return found


def module_name(path: Path) -> str:
    """`ostinato.room.file` for a source file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("ostinato", *(part for part in parts if part != "__init__")))


def test_every_import_keeps_to_the_map() -> None:
    """No room imports a room that the map does not allow, and no room goes behind another's door."""
    faults: list[str] = []
    for path in sorted(ROOT.rglob("*.py")):
        name = module_name(path)
        room = room_of(name)
        for target in imports_of(path):
            if not target.startswith("ostinato"):
                continue
            other = room_of(target)
            if room is None:
                continue
            if other is None and target != "ostinato":
                faults.append(f"{name} imports {target}, which lies above every room")
            elif other is not None and other != room and other not in MAP[room]:
                faults.append(f"{name} imports {target}: {room} may not import {other}")
            elif other is not None and other != room and target != f"ostinato.{other}":
                faults.append(f"{name} imports {target}: go through the door, ostinato.{other}")
    assert not faults, "\n".join(faults)


def test_every_folder_is_on_the_map() -> None:
    """A new room needs a place on the map, and a door with a docstring."""
    folders = {path.parent.relative_to(ROOT).as_posix().replace("/", ".") for path in ROOT.rglob("*.py")} - {"."}
    known = set(MAP)
    unknown = {folder for folder in folders if room_of(f"ostinato.{folder}") not in known}
    assert not unknown
    for room in known:
        door = ROOT / room.replace(".", "/") / "__init__.py"
        assert ast.get_docstring(ast.parse(door.read_text())), f"{door} lacks its paragraph"


def test_torch_stays_in_its_rooms() -> None:
    """Outside the torch rooms nothing imports torch, not even inside a function."""
    faults = [
        module_name(path)
        for path in ROOT.rglob("*.py")
        if room_of(module_name(path)) not in TORCH_ROOMS
        and any(target.split(".")[0] == "torch" for target in imports_of(path))
    ]
    assert not faults


def test_the_base_install_is_light() -> None:
    """Importing every room that is not a torch room, and the command line, loads no heavy package."""
    rooms = [room for room in MAP if room not in TORCH_ROOMS] + ["cli"]
    lines = [f"import ostinato.{room}" for room in rooms]
    lines += ["import sys", "print(sorted({'torch', 'matplotlib', 'transformers'} & set(sys.modules)))"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
