"""The names of the engine's slots, and what loading one answers."""

from msgspec import Struct

SLOTS = ("release", "candidate", "evaluation")
"""One for each arm of an experiment, and one for weights that no person may meet yet."""


class LoadRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of PUT /slots/SLOT."""

    version: str


class Loaded(Struct, frozen=True):
    """A slot was loaded. `seconds` is the whole load; `canary` holds natural log-probabilities of a fixed prompt."""

    slot: str
    version: str
    seconds: float
    canary: list[float]
