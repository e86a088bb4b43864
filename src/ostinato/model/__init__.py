"""The transformer, room of torch. In come a configuration and weights (a Hugging Face folder, or arrays of BF16 bits as
the weights room gives them) and token ids; out go logits, the experts that were chosen, and weights in the same forms.
Qwen3 (dense), Qwen3-MoE and DeepSeek-V3 shapes, packed documents, expert replay, a plain key-value cache. May import
records.
"""

from ostinato.model.attention import LATENT_EPS, KVCache, latent_scale
from ostinato.model.bits import Arrays, load_bits, round_to_bf16, state_to_bits
from ostinato.model.config import Groups, Latent, ModelConfig, Yarn
from ostinato.model.folder import load_folder, load_model, save_folder
from ostinato.model.hf_config import config_from_hf, config_to_hf
from ostinato.model.moe import group_choice, group_shares
from ostinato.model.naming import from_hf_state, to_hf_state
from ostinato.model.rope import frequencies, rotary_scale
from ostinato.model.transformer import ForwardOutput, Transformer, load_balance_loss

__all__ = [
    "LATENT_EPS",
    "Arrays",
    "ForwardOutput",
    "Groups",
    "KVCache",
    "Latent",
    "ModelConfig",
    "Transformer",
    "Yarn",
    "config_from_hf",
    "config_to_hf",
    "frequencies",
    "from_hf_state",
    "group_choice",
    "group_shares",
    "latent_scale",
    "load_balance_loss",
    "load_bits",
    "load_folder",
    "load_model",
    "rotary_scale",
    "round_to_bf16",
    "save_folder",
    "state_to_bits",
    "to_hf_state",
]
