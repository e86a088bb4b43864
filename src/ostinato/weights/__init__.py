"""Sets of weights as content-addressed versions on disk. Arrays come in (a dict of NumPy arrays under Hugging Face
tensor names: uint16 for BF16 bit patterns, float32 for F32), with the other files of the model folder (the frame);
versions and bit-equal arrays go out. A version is stored whole (an anchor) or as the bits that differ from its parent
(a delta). May import records only; no torch.
"""

from ostinato.weights.content import Arrays
from ostinato.weights.errors import DamagedWeightsError
from ostinato.weights.store import WeightStore

__all__ = ["Arrays", "DamagedWeightsError", "WeightStore"]
