"""Identifiers: UUID version 7, so that ids sort by the time at which they were made."""

import os
import time


def new_id(prefix: str = "") -> str:
    """A fresh id: `prefix` and 32 hexadecimal digits of a UUIDv7 (RFC 9562, section 5.7)."""
    millis = time.time_ns() // 1_000_000
    rand = int.from_bytes(os.urandom(10), "big")
    value = (millis & ((1 << 48) - 1)) << 80 | 0x7 << 76 | ((rand >> 62) & 0xFFF) << 64 | 0b10 << 62
    value |= rand & ((1 << 62) - 1)
    return f"{prefix}{value:032x}"
