"""Between our parameter names and those in Hugging Face's files: only the experts differ.

In memory the experts of a layer are stacked, `model.layers.0.mlp.experts.gate_proj` of shape [E, I, H]; in the files
each has its own tensor, `model.layers.0.mlp.experts.3.gate_proj.weight` of shape [I, H]. A tied `lm_head.weight` is
not written, and accepted when read if it equals the embedding. The layers for multi-token prediction that DeepSeek-V3
appends to its own are not read, which is logged.
"""

import logging
import re
from collections.abc import Mapping

import torch
from torch import Tensor

from ostinato.model.config import ModelConfig
from ostinato.records import BadInputError

_ONE = re.compile(r"(model\.layers\.\d+\.mlp\.experts)\.(\d+)\.(gate_proj|up_proj|down_proj)\.weight")
_LAYER = re.compile(r"model\.layers\.(\d+)\..*")
_STACK = re.compile(r"(model\.layers\.\d+\.mlp\.experts)\.(gate_proj|up_proj|down_proj)")


def to_hf_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of `Transformer` under the names of Hugging Face's files (views, nothing is copied)."""
    out: dict[str, Tensor] = {}
    for name, tensor in state.items():
        match = _STACK.fullmatch(name)
        if match is None:
            out[name] = tensor
            continue
        for number, part in enumerate(tensor):
            out[f"{match[1]}.{number}.{match[2]}.weight"] = part
    return out


def from_hf_state(config: ModelConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The reverse. Raises `BadInputError` naming the first expert that is missing from a stack."""
    out: dict[str, Tensor] = {}
    stacks: dict[str, dict[int, Tensor]] = {}
    for name, tensor in _without_extra_layers(config, state).items():
        match = _ONE.fullmatch(name)
        if match is None:
            out[name] = tensor
        else:
            stacks.setdefault(f"{match[1]}.{match[3]}", {})[int(match[2])] = tensor
    for name, parts in stacks.items():
        for number in range(config.num_experts):
            if number not in parts:
                raise BadInputError(f"Expert {number} of {name} is missing.", hint="Copy the whole model folder again.")
        if len(parts) != config.num_experts:
            extra = max(parts)
            raise BadInputError(
                f"{name} holds expert {extra}, but the configuration has {config.num_experts} experts.",
                hint="Check that config.json belongs to these weights.",
            )
        out[name] = torch.stack([parts[number] for number in range(config.num_experts)])
    if config.tie_word_embeddings and "lm_head.weight" in out:
        if not torch.equal(out["lm_head.weight"], out["model.embed_tokens.weight"]):
            raise BadInputError(
                "lm_head.weight differs from the embedding, but config.json says that they are tied.",
                hint="Set tie_word_embeddings to false in config.json.",
            )
        del out["lm_head.weight"]
    return out


def _without_extra_layers(config: ModelConfig, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    if config.family != "deepseek_v3":
        return state
    extra = {name for name in state if (layer := _LAYER.fullmatch(name)) and int(layer[1]) >= config.num_layers}
    if extra:
        logging.getLogger(__name__).warning(
            "%d tensors of layers after the %d of the model are for multi-token prediction and are not read.",
            len(extra),
            config.num_layers,
        )
    return {name: tensor for name, tensor in state.items() if name not in extra}
