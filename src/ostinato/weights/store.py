"""The weights folder: publish, fetch, verify.

`links/VERSION.weights` holds one version each, `frames/HASH.frame` the other files of a model folder, once per
content. Whole sets are handled in memory. Nothing is ever deleted or altered once it is whole.
"""

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import zstandard
from numpy.typing import NDArray

from ostinato.records import OstinatoError, Version
from ostinato.weights.coding import TensorEntry, apply_delta, decode_whole, encode_delta, encode_whole, same_layout
from ostinato.weights.content import Arrays, bits, content_digest, version_name
from ostinato.weights.errors import DamagedWeightsError, damaged
from ostinato.weights.files import (
    LinkHeader,
    frame_hash,
    pack_frame,
    pack_link,
    read_frame,
    read_frames,
    read_header,
    write_atomic,
)
from ostinato.weights.folders import read_folder, write_folder

ANCHOR_EVERY = 10
"""Every tenth link of a chain is an anchor, so that a fetch applies at most nine deltas."""


class WeightStore:
    """The versions under one folder. Several processes may publish and fetch at once: a link appears by one rename,
    and its name is its content's hash."""

    def __init__(self, root: Path) -> None:
        self._links = Path(root) / "links"
        self._frames = Path(root) / "frames"

    def publish(
        self,
        arrays: Mapping[str, NDArray[np.generic]],
        *,
        parent: str | None,
        frame: dict[str, bytes] | None = None,
        meta: Mapping[str, str | int | float] | None = None,
    ) -> Version:
        """Store a set of weights durably and return its version; the same content again returns the first one.

        `parent` must be stored here; None starts a new line. `frame` None means the parent's frame. Raises
        `MissingError` or `DamagedWeightsError` when the parent cannot be read, `BadInputError` for other types."""
        new = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        base = self._header(parent) if parent is not None else None
        inherited = base.version.frame if base else ""
        frame_name = inherited if frame is None else self._put_frame(frame)
        digest = content_digest(new, frame_name)
        version = version_name(digest)
        path = self._path(version)
        if path.exists():
            try:
                self.fetch(version)
                return self.get(version)
            except OstinatoError:
                base = None  # a damaged link is replaced by an anchor, which depends on nothing else
        link = self._link(new, base, digest, frame_name, parent, dict(meta or {}))
        write_atomic(path, link)
        return self.get(version)

    def fetch(self, version: str) -> Arrays:
        """The tensors of `version`, bit for bit. Every step from the nearest anchor is checked against the hash in its
        link; raises `MissingError` or `DamagedWeightsError` rather than return wrong weights."""
        chain = [self._header(version)]
        while chain[-1].version.kind == "delta":
            link = chain[-1]
            if link.version.parent is None or len(chain) > ANCHOR_EVERY:
                raise damaged(self._path(link.version.version), version, "its chain of deltas reaches no anchor")
            chain.append(self._header(link.version.parent))
            if chain[-1].digest != link.base_digest:
                raise damaged(self._path(link.version.version), version, "it belongs to another parent")
        arrays: Arrays = {}
        for link in reversed(chain):
            path = self._path(link.version.version)
            frames = read_frames(path, link)
            try:
                whole = link.version.kind == "anchor"
                arrays = decode_whole(link.table, frames) if whole else apply_delta(arrays, link.table, frames)
            except (ValueError, KeyError, zstandard.ZstdError) as error:
                raise damaged(path, version, str(error)) from error
            if content_digest(arrays, link.version.frame) != link.digest:
                raise damaged(path, version, "its weights do not have the hash that they should")
        return arrays

    def frame(self, version: str) -> dict[str, bytes]:
        """The other files of the model folder (config.json, tokenizer.json, ...), by name."""
        name = self.get(version).frame
        return read_frame(self._frames / f"{name}.frame", version, name) if name else {}

    def get(self, version: str) -> Version:
        """The record of `version`. Raises `MissingError` when it is not stored, `DamagedWeightsError` when torn."""
        return self._header(version).version

    def versions(self) -> list[Version]:
        """All stored versions, oldest first."""
        found = [self.get(path.stem) for path in self._links.glob("v-*.weights")]
        return sorted(found, key=lambda version: (version.created_at, version.version))

    def import_folder(self, folder: Path) -> Version:
        """Publish a Hugging Face folder (one safetensors file or shards) as an anchor. F32 and F16 tensors are rounded
        to BF16, to nearest and ties to even; `meta["rounded_tensors"]` says how many."""
        arrays, frame, rounded = read_folder(Path(folder))
        return self.publish(arrays, parent=None, frame=frame, meta={"source": str(folder), "rounded_tensors": rounded})

    def export_folder(self, version: str, folder: Path) -> None:
        """Write `version` as a Hugging Face folder. Raises `ConflictError` when a model is there already."""
        write_folder(Path(folder), self.fetch(version), self.frame(version))

    def _path(self, version: str) -> Path:
        return self._links / f"{version}.weights"

    def _header(self, version: str) -> LinkHeader:
        return read_header(self._path(version), version)

    def _put_frame(self, frame: dict[str, bytes]) -> str:
        name = frame_hash(frame)
        if not name:
            return ""
        path = self._frames / f"{name}.frame"
        if path.exists():
            try:
                read_frame(path, "(being published)", name)
                return name
            except DamagedWeightsError:
                pass  # written again below
        write_atomic(path, pack_frame(frame))
        return name

    def _link(
        self,
        new: Arrays,
        base: LinkHeader | None,
        digest: str,
        frame_name: str,
        parent: str | None,
        meta: dict[str, str | int | float],
    ) -> bytes:
        """The link's bytes: a delta where there is a base near enough and it is smaller, else an anchor."""
        old = self.fetch(base.version.version) if base else {}
        comparable = base is not None and same_layout(old, new)
        table, frames = encode_whole(new)
        depth = 0
        if base and comparable and base.depth + 1 < ANCHOR_EVERY:
            delta_table, delta_frames = encode_delta(old, new)
            if sum(map(len, delta_frames)) < sum(map(len, frames)):
                table, frames, depth = delta_table, delta_frames, base.depth + 1
        record = Version(
            version=version_name(digest),
            parent=parent,
            kind="delta" if depth else "anchor",
            created_at=time.time(),
            stored_bytes=sum(map(len, frames)),
            full_bytes=sum(array.nbytes for array in new.values()),
            changed_share=_changed_share(old, new) if comparable else 1.0,
            frame=frame_name,
            meta=meta,
        )
        return _pack(record, digest, base.digest if base and depth else "", depth, table, frames)


def _changed_share(old: Arrays, new: Arrays) -> float:
    """The share of elements whose bits differ."""
    changed = sum(int(np.count_nonzero(bits(old[name]) != bits(new[name]))) for name in new)
    return changed / max(sum(array.size for array in new.values()), 1)


def _pack(
    record: Version, digest: str, base_digest: str, depth: int, table: list[TensorEntry], frames: list[bytes]
) -> bytes:
    payload_hash = hashlib.sha256(b"".join(frames)).hexdigest()
    return pack_link(
        LinkHeader(record, digest, base_digest, depth, table, [len(frame) for frame in frames], payload_hash), frames
    )
