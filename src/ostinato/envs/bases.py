"""Bases: read-only, content-addressed file trees under one folder, which sandboxes use as the lower layer.

A base is named `b-` and the first 16 hexadecimal digits of the SHA-256 over its sorted entries, and lies at
`ROOT/ID/tree`. Version-control history and caches are not copied. Files are not synced one by one: a base is verified
against its name before its first use in a process, so one torn by power loss is refused by name instead of used.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from ostinato.records import BadInputError, ConflictError, MissingError, new_id

SCRUBBED = frozenset(
    {".git", ".hg", ".svn", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", "node_modules"}
)
"""Folder and file names that never enter a base."""
MAX_BYTES = 512 * 2**20
"""How large a base may be."""
OWNER = 60990
"""The uid and gid of base files, and of sandboxes on the host, when the server runs as root: every file of the lower
layer must belong to an id that the sandbox's user namespace maps, else the first edit of it fails."""

Entry = tuple[str, bytes]
"""`x` (executable), `f` (file) or `l` (symbolic link), and the content or the link's target."""


class BaseStore:
    """The bases under one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._verified: set[str] = set()
        root.mkdir(parents=True, exist_ok=True)

    def import_files(self, files: Mapping[str, str]) -> str:
        """Store texts (path -> text) as a base and give its id."""
        return self._store({path: ("f", text.encode("utf-8", "surrogatepass")) for path, text in files.items()})

    def import_folder(self, folder: Path) -> str:
        """Store a folder as a base and give its id. Of a git repository, the files that git tracks or does not
        ignore, as they are now. Symbolic links that leave the folder are refused."""
        if not folder.is_dir():
            raise MissingError(f"There is no folder {folder}.", hint="Name the folder of a repository.")
        return self._store({path: _entry(folder, path) for path in _paths(folder)})

    def tree(self, base: str) -> Path:
        """The folder that holds the files of a base, verified once. Raises `MissingError` or, where its content no
        longer fits its name, `ConflictError`."""
        tree = self.root / base / "tree"
        if base in self._verified:
            return tree
        if not base.startswith("b-") or not base[2:].isalnum() or not tree.is_dir():
            raise MissingError(f"There is no base {base!r}.", hint="Import it first (POST /bases).", param="base")
        if base_id({path: _entry(tree, path) for path in _walk(tree)}) != base:
            raise ConflictError(f"The files of base {base} do not fit its name.", hint="Import the base again.")
        self._verified.add(base)
        return tree

    def ids(self) -> list[str]:
        """The ids of all bases, sorted."""
        return sorted(item.name for item in self.root.iterdir() if item.name.startswith("b-"))

    def _store(self, entries: dict[str, Entry]) -> str:
        kept = {path: entry for path, entry in entries.items() if not _scrubbed(path)}
        check_paths(kept)
        if sum(len(content) for _, content in kept.values()) > MAX_BYTES:
            raise BadInputError(f"The base is larger than {MAX_BYTES >> 20} MiB.", hint="Leave large data files out.")
        base = base_id(kept)
        if base in self._verified:
            return base
        target = self.root / base
        try:
            self.tree(base)
            return base
        except MissingError:
            pass
        except ConflictError:
            target.rename(self.root / f".torn-{new_id()}")
        fresh = self.root / f".new-{new_id()}"
        _write_tree(fresh / "tree", kept)
        try:
            fresh.rename(target)
        except OSError:
            # Another process imported the same files between our look and our rename.
            shutil.rmtree(fresh)
        self._verified.add(base)
        return base


def import_base(root: Path, source: Mapping[str, str] | Path) -> str:
    """Import texts (path -> text) or a folder into the bases under `root`, and give the base's id."""
    store = BaseStore(root)
    return store.import_folder(source) if isinstance(source, Path) else store.import_files(source)


def base_id(entries: Mapping[str, Entry]) -> str:
    """The name of a base: a hash over kind, path and content of every entry, each preceded by its length."""
    digest = hashlib.sha256()
    for path, (kind, content) in sorted(entries.items()):
        name = path.encode("utf-8", "surrogateescape")
        digest.update(f"{kind}{len(name)}:{len(content)}:".encode())
        digest.update(name)
        digest.update(content)
    return f"b-{digest.hexdigest()[:16]}"


def check_paths(paths: Mapping[str, object]) -> None:
    """Raise `BadInputError` for the first path that is absolute, leaves the tree, is not in its shortest form, or
    names a folder that another path needs as a file."""
    for path in paths:
        pure = PurePosixPath(path)
        if not path or "\0" in path or pure.is_absolute() or ".." in pure.parts or str(pure) != path or path == ".":
            raise BadInputError(
                f"{path!r} is not a path inside the work tree.", hint="Use a relative path without `..`.", param="files"
            )
        for parent in pure.parents:
            if str(parent) in paths:
                raise BadInputError(f"{str(parent)!r} is both a file and a folder of {path!r}.", param="files")


def _scrubbed(path: str) -> bool:
    return path.endswith((".pyc", ".pyo")) or not SCRUBBED.isdisjoint(path.split("/"))


def _paths(folder: Path) -> list[str]:
    if not (folder / ".git").exists():
        return _walk(folder)
    command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True, check=True)
    except FileNotFoundError as error:
        raise MissingError(
            "git is not installed, and it lists a repository's files.", hint="apt-get install git"
        ) from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise BadInputError(f"git cannot list the files of {folder}: {said}") from error
    listed = {os.fsdecode(name) for name in done.stdout.split(b"\0") if name}
    return [path for path in listed if os.path.lexists(folder / path) and not (folder / path).is_dir()]


def _walk(folder: Path) -> list[str]:
    found: list[str] = []
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        folders[:] = [name for name in folders if name not in links and name not in SCRUBBED]
        found.extend(str((Path(place) / name).relative_to(folder)) for name in (*files, *links))
    return found


def _entry(folder: Path, path: str) -> Entry:
    full = folder / path
    if full.is_symlink():
        target = str(full.readlink())
        inside = os.path.normpath(str(PurePosixPath(path).parent / target))
        if target.startswith("/") or inside.startswith(".."):
            raise BadInputError(f"The symbolic link {path!r} leaves the folder (to {target!r}).", hint="Remove it.")
        return "l", os.fsencode(target)
    if not full.is_file():
        raise BadInputError(f"{path!r} is not a regular file.", hint="Remove it from the folder.")
    return ("x" if os.access(full, os.X_OK) else "f"), full.read_bytes()


def _write_tree(tree: Path, entries: Mapping[str, Entry]) -> None:
    tree.mkdir(parents=True)
    made = {str(tree)}
    for path, (kind, content) in entries.items():
        full = f"{tree}/{path}"
        parent = os.path.dirname(full)  # noqa: PTH120 - a string is several times faster than Path here
        if parent not in made:
            os.makedirs(parent, exist_ok=True)  # noqa: PTH103
            made.add(parent)
        if kind == "l":
            os.symlink(content, full)  # noqa: PTH211
            continue
        handle = os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755 if kind == "x" else 0o644)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    if os.geteuid() == 0:
        for place, folders, files in os.walk(tree.parent):
            for name in (".", *folders, *files):
                os.chown(f"{place}/{name}", OWNER, OWNER, follow_symlinks=False)
