"""Turn traces as bytes: packed (MessagePack, zstd), checked by SHA-256, and gathered into sealed segment objects.

A sealed segment object is: 8 bytes magic, index length (uint32 little-endian), SHA-256 of the index, the index
(MessagePack list of [turn_id, start, size, sha256]; `start` counts from the first byte of the object), the packed
traces. Every byte is covered by the magic, the index checksum or a trace's checksum.
"""

import hashlib
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import msgspec
import obstore
import zstandard
from obstore.store import LocalStore, from_url

from ostinato.records import OstinatoError, TurnTrace
from ostinato.store.connections import fsync_folder

_MAGIC = b"OSTNSEG1"
_HEAD = struct.Struct("<I32s")
_LEVEL = 3
_MOST_BYTES = 1 << 30
_DECODER = msgspec.msgpack.Decoder(TurnTrace)


class CorruptTraceError(OstinatoError):
    """Stored bytes are not the bytes that were written."""


class Packed(msgspec.Struct, frozen=True):
    """One packed trace and its checksum."""

    turn_id: str
    body: bytes
    sha256: bytes


class Place(msgspec.Struct, frozen=True):
    """Where a packed trace lies in a sealed segment object."""

    turn_id: str
    start: int
    size: int
    sha256: bytes


def pack(turn_id: str, trace: TurnTrace) -> Packed:
    """A trace as bytes."""
    body = zstandard.ZstdCompressor(level=_LEVEL).compress(msgspec.msgpack.encode(trace))
    return Packed(turn_id=turn_id, body=body, sha256=hashlib.sha256(body).digest())


def unpack(body: bytes, sha256: bytes, where: str) -> TurnTrace:
    """The trace in `body`; `where` names the file for the error. Raises `CorruptTraceError`."""
    if hashlib.sha256(body).digest() != sha256:
        raise _corrupt(where, "its checksum does not match")
    return _DECODER.decode(zstandard.ZstdDecompressor().decompress(body, max_output_size=_MOST_BYTES))


def _corrupt(where: str, why: str) -> CorruptTraceError:
    return CorruptTraceError(
        f"The trace in {where} is damaged: {why}.",
        hint="Restore the file from a copy; sessions that need it are quarantined meanwhile.",
    )


class TraceStore:
    """Sealed segments in an object store: a folder, or any URL that obstore knows (s3://, gs://, az://)."""

    def __init__(self, folder: Path, url: str = "") -> None:
        if url.startswith("file://"):
            folder, url = Path(url2pathname(urlsplit(url).path)), ""
        self._folder = None if url else folder
        self._name = url or str(folder)
        # obstore's stores have no common public base type.
        self._store: Any = from_url(url) if url else LocalStore(prefix=folder, mkdir=True)

    def where(self, key: str, start: int | None = None) -> str:
        """A name for people: the object, and the byte at which a trace starts."""
        return f"{self._name}/{key}" + ("" if start is None else f" at byte {start}")

    def seal(self, key: str, traces: Sequence[Packed]) -> list[Place]:
        """Write `traces` as the object `key`; it is durable on return."""
        entries = [(t.turn_id, len(t.body), t.sha256) for t in traces]
        # The index holds absolute positions, and their width depends on the index: fixed-width numbers end the circle.
        blank = _index(entries, 0)
        first = len(_MAGIC) + _HEAD.size + len(blank)
        index = _index(entries, first)
        head = _HEAD.pack(len(index), hashlib.sha256(index).digest())
        obstore.put(self._store, key, b"".join([_MAGIC, head, index, *(t.body for t in traces)]), mode="create")
        if self._folder is not None:
            self._make_durable(self._folder, key)
        return _places(index)

    def _make_durable(self, folder: Path, key: str) -> None:
        """A folder store renames into place but does not wait for the disk; a remote one has answered already."""
        path = folder / key
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        for parent in path.parents:
            fsync_folder(parent)
            if parent == folder:
                fsync_folder(folder.parent)
                return

    def read(self, key: str, places: Sequence[Place]) -> list[TurnTrace]:
        """Traces out of one object, each checked. Raises `CorruptTraceError` naming the object."""
        try:
            bodies = obstore.get_ranges(
                self._store, key, starts=[p.start for p in places], lengths=[p.size for p in places]
            )
        except FileNotFoundError:
            raise _corrupt(self.where(key), "the file is gone") from None
        except obstore.exceptions.GenericError as error:
            raise _corrupt(self.where(key), f"it is shorter than it was ({error})") from None
        return [
            unpack(bytes(body), place.sha256, self.where(key, place.start))
            for body, place in zip(bodies, places, strict=True)
        ]

    def verify(self, key: str) -> list[str]:
        """Check every byte of one object: the turn ids in it. Raises `CorruptTraceError`."""
        try:
            whole = bytes(obstore.get(self._store, key).bytes())
        except FileNotFoundError:
            raise _corrupt(self.where(key), "the file is gone") from None
        offset = len(_MAGIC) + _HEAD.size
        if whole[: len(_MAGIC)] != _MAGIC or len(whole) < offset:
            raise _corrupt(self.where(key), "it does not begin like a sealed segment")
        size, sha256 = _HEAD.unpack(whole[len(_MAGIC) : offset])
        index = whole[offset : offset + size]
        if hashlib.sha256(index).digest() != sha256:
            raise _corrupt(self.where(key), "the checksum of its index does not match")
        places = _places(index)
        for place in places:
            unpack(whole[place.start : place.start + place.size], place.sha256, self.where(key, place.start))
        if places and places[-1].start + places[-1].size != len(whole):
            raise _corrupt(self.where(key), f"it has {len(whole)} bytes, its index ends elsewhere")
        return [place.turn_id for place in places]


def _index(entries: list[tuple[str, int, bytes]], first: int) -> bytes:
    rows = []
    for turn_id, size, sha256 in entries:
        rows.append((turn_id, struct.pack("<QQ", first, size), sha256))
        first += size
    return msgspec.msgpack.encode(rows)


def _places(index: bytes) -> list[Place]:
    rows = msgspec.msgpack.decode(index, type=list[tuple[str, bytes, bytes]])
    places = []
    for turn_id, span, sha256 in rows:
        start, size = struct.unpack("<QQ", span)
        places.append(Place(turn_id, start, size, sha256))
    return places
