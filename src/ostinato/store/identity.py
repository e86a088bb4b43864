"""Response ids that we can recognise as ours, and API keys that we cannot read back."""

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Literal

from msgspec import Struct

from ostinato.records import new_id
from ostinato.store.connections import fsync_folder

Scope = Literal["infer", "feedback", "admin"]

_PREFIX = "chatcmpl-"
_UUID_DIGITS = 32
_TAG_DIGITS = 16


class ApiKey(Struct, frozen=True):
    """A key that was checked: its name (used as the person where no other name came) and what it may do."""

    name: str
    scopes: frozenset[Scope]
    created_at: float


class ResponseIds:
    """Mints and verifies response ids: `chatcmpl-`, a UUIDv7 in hex, and the first 64 bits of an HMAC-SHA-256 over
    it in hex. The signing key lies in the data folder (mode 0600) and is made at the first use."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._key = _signing_key(folder / "response-ids.key")

    def mint(self) -> str:
        """A fresh id; later ids sort after earlier ones."""
        stem = new_id(_PREFIX)
        return stem + self._tag(stem)

    def verify(self, response_id: str) -> bool:
        """Whether we minted this id (whether or not a turn with it is stored)."""
        cut = len(_PREFIX) + _UUID_DIGITS
        if len(response_id) != cut + _TAG_DIGITS or not response_id.isascii():
            return False
        return hmac.compare_digest(response_id[cut:], self._tag(response_id[:cut]))

    def _tag(self, stem: str) -> str:
        return hmac.digest(self._key, stem.encode(), "sha256").hex()[:_TAG_DIGITS]


def _signing_key(path: Path) -> bytes:
    """Read the key, or make it: written whole under another name and linked, so that two processes agree on one."""
    if not path.exists():
        draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(handle, secrets.token_bytes(32))
            os.fsync(handle)
        finally:
            os.close(handle)
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        fsync_folder(path.parent)
    return path.read_bytes()


def new_secret() -> str:
    """A secret for an API key: 256 random bits."""
    return "ost-" + secrets.token_urlsafe(32)


def secret_hash(secret: str) -> str:
    """What we keep of a secret. It has 256 random bits, so a plain SHA-256 cannot be searched."""
    return hashlib.sha256(secret.encode()).hexdigest()
