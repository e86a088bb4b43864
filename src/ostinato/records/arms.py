"""Which side of an experiment a person is on: a pure rule that the gateway and the statistics share."""

import hashlib
from typing import Literal

Arm = Literal["control", "candidate"]
CONTROL: Arm = "control"
CANDIDATE: Arm = "candidate"


def arm_of(person: str, experiment_id: str, share: float = 0.5) -> Arm:
    """The arm of `person` in an experiment: sticky, independent between experiments, `share` of persons get the
    candidate. A hash of both names, so that no table is needed and every process agrees."""
    digest = hashlib.blake2b(f"{experiment_id}\x00{person}".encode(), digest_size=8).digest()
    return CANDIDATE if int.from_bytes(digest, "big") < share * 2**64 else CONTROL


def in_held_out_group(person: str, share: float = 0.15) -> bool:
    """Whether a person belongs to the group whose sessions make the bench and are never trained on. Sticky for ever."""
    digest = hashlib.blake2b(f"held out\x00{person}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64
