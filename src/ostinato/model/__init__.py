"""The transformer, room of torch. In come a configuration and weights (a Hugging Face folder, or arrays of BF16 bits as
the weights room gives them) and token ids; out go logits, the experts that were chosen, and weights in the same forms.
Qwen3 (dense) and Qwen3-MoE shapes, packed documents, expert replay, and a plain key-value cache. May import records.
"""

from ostinato.model.bits import Arrays, load_bits, round_to_bf16, state_to_bits
from ostinato.model.config import ModelConfig, config_from_hf, config_to_hf
from ostinato.model.folder import load_folder, load_model, save_folder
from ostinato.model.layers import KVCache
from ostinato.model.naming import from_hf_state, to_hf_state
from ostinato.model.transformer import ForwardOutput, Transformer, load_balance_loss

__all__ = [
    "Arrays",
    "ForwardOutput",
    "KVCache",
    "ModelConfig",
    "Transformer",
    "config_from_hf",
    "config_to_hf",
    "from_hf_state",
    "load_balance_loss",
    "load_bits",
    "load_folder",
    "load_model",
    "round_to_bf16",
    "save_folder",
    "state_to_bits",
    "to_hf_state",
]
