"""Files that are either whole and unaltered or refused.

Layout of a link (one version): the magic line, 32 bytes SHA-256 of the header, 4 bytes little-endian length of the
header, the header (zstd-compressed JSON: of a small update it would be the larger part), the payload (zstd frames, one
after another). The header holds the payload's SHA-256, so each byte is covered. Links of the first layout, whose header
is not compressed, are read too. A frame file is the magic line, 32 bytes SHA-256, and zstd-compressed msgpack.
"""

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

import msgspec
import zstandard

from ostinato.records import MissingError, Version
from ostinato.weights.coding import TensorEntry
from ostinato.weights.errors import damaged

LINK_MAGIC, FIRST_LINK_MAGIC = b"ostinato weights 2\n", b"ostinato weights 1\n"
FRAME_MAGIC = b"ostinato frame 1\n"
_HASH = 32
_LARGEST_HEADER = 64 << 20


class LinkHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands before a link's payload. `digest` is the content's whole SHA-256, `base_digest` that of the parent
    which a delta starts from ("" in an anchor), `depth` the number of deltas back to the anchor."""

    version: Version
    digest: str
    base_digest: str
    depth: int
    table: list[TensorEntry]
    frame_sizes: list[int]
    payload_sha256: str


def write_atomic(path: Path, data: bytes) -> None:
    """Make `path` hold `data`: either wholly and durably, or not at all. A killed writer leaves only a file named
    `.NAME.PID.part`, which nothing reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def pack_link(header: LinkHeader, frames: list[bytes]) -> bytes:
    """The bytes of a link."""
    head = zstandard.ZstdCompressor(level=9).compress(msgspec.json.encode(header))
    return b"".join([LINK_MAGIC, hashlib.sha256(head).digest(), len(head).to_bytes(4, "little"), head, *frames])


def read_header(path: Path, version: str) -> LinkHeader:
    """The verified header of a link. Raises `MissingError` or `DamagedWeightsError`, naming file and version."""
    with _open(path, version) as file:
        fixed = len(LINK_MAGIC) + _HASH + 4
        start = file.read(fixed)
        if len(start) != fixed or not start.startswith((LINK_MAGIC, FIRST_LINK_MAGIC)):
            raise damaged(path, version, "it does not begin like a link of weights")
        head = file.read(int.from_bytes(start[-4:], "little"))
    if hashlib.sha256(head).digest() != start[len(LINK_MAGIC) : -4]:
        raise damaged(path, version, "its header does not match its checksum")
    try:
        if start.startswith(LINK_MAGIC):
            head = zstandard.ZstdDecompressor().decompress(head, max_output_size=_LARGEST_HEADER)
        header = msgspec.json.decode(head, type=LinkHeader)
    except (msgspec.MsgspecError, zstandard.ZstdError) as error:
        raise damaged(path, version, f"its header cannot be understood ({error})") from error
    if header.version.version != version:
        raise damaged(path, version, f"it holds version {header.version.version}")
    return header


def read_frames(path: Path, header: LinkHeader) -> list[bytes]:
    """The verified zstd frames of a link."""
    version = header.version.version
    with _open(path, version) as file:
        start = file.read(len(LINK_MAGIC) + _HASH + 4)
        file.seek(int.from_bytes(start[-4:], "little"), os.SEEK_CUR)
        payload = file.read()
    if len(payload) != sum(header.frame_sizes):
        raise damaged(path, version, f"it has {len(payload)} bytes of payload, not {sum(header.frame_sizes)}")
    if hashlib.sha256(payload).hexdigest() != header.payload_sha256:
        raise damaged(path, version, "its payload does not match its checksum")
    frames, at = [], 0
    for size in header.frame_sizes:
        frames.append(payload[at : at + size])
        at += size
    return frames


def frame_hash(frame: dict[str, bytes]) -> str:
    """SHA-256, in hex, over the names and contents of a frame's files ("" for an empty frame)."""
    if not frame:
        return ""
    digest = hashlib.sha256()
    for name in sorted(frame):
        digest.update(f"{name}\x00{len(frame[name])}\x00".encode())
        digest.update(frame[name])
    return digest.hexdigest()


def pack_frame(frame: dict[str, bytes]) -> bytes:
    """The bytes of a frame file."""
    body = zstandard.ZstdCompressor(level=9).compress(msgspec.msgpack.encode(frame))
    return FRAME_MAGIC + hashlib.sha256(body).digest() + body


def read_frame(path: Path, version: str, wanted: str) -> dict[str, bytes]:
    """The verified files of the frame with hash `wanted`."""
    with _open(path, version) as file:
        data = file.read()
    body = data[len(FRAME_MAGIC) + _HASH :]
    if not data.startswith(FRAME_MAGIC) or hashlib.sha256(body).digest() != data[len(FRAME_MAGIC) :][:_HASH]:
        raise damaged(path, version, "it does not match its checksum")
    try:
        frame = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(body), type=dict[str, bytes])
    except (msgspec.MsgspecError, zstandard.ZstdError) as error:
        raise damaged(path, version, f"it cannot be decoded ({error})") from error
    if frame_hash(frame) != wanted:
        raise damaged(path, version, f"it holds frame {frame_hash(frame)[:16]}, not {wanted[:16]}")
    return frame


def _open(path: Path, version: str) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise MissingError(
            f"Version {version} is not here: the file {path} does not exist.",
            hint="Check the name with `ostinato status`, or restore the file from a backup.",
        ) from error
