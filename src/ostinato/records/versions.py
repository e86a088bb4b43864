"""One set of weights."""

from typing import Literal

from msgspec import Struct


class Version(Struct, frozen=True):
    """One published set of weights. `version` is `v-` and the first 16 hex digits of the SHA-256 over everything that
    defines it. `kind`: an anchor is stored whole, a delta holds the bits that differ from its parent.
    `stored_bytes` is what it takes on disk, `full_bytes` the size of the whole bf16 file."""

    version: str
    parent: str | None
    kind: Literal["anchor", "delta"]
    created_at: float
    stored_bytes: int
    full_bytes: int
    changed_share: float
    frame: str
    meta: dict[str, str | int | float] = {}


def stays_float32(tensor: str) -> bool:
    """Whether the tensor of this name is published as it is where all others are rounded to BF16: the bias of a
    DeepSeek-V3 router, whose last bits decide which experts are chosen."""
    return tensor.endswith(".e_score_correction_bias")
