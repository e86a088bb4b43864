"""The shape of a model, read from and written to Hugging Face's `config.json`.

What we cannot run exactly is refused by the name of the field; nothing is ignored that changes the logits.
"""

from typing import Any, Literal

from msgspec import Struct

from ostinato.records import BadInputError

Family = Literal["qwen3", "qwen3_moe"]

_ARCHITECTURES: dict[Family, str] = {"qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM"}
_HINT = "Use a plain Qwen3 or Qwen3-MoE folder, or serve this model with another engine."


class ModelConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes of a Qwen3 or Qwen3-MoE transformer. The expert fields are 0 for a dense model, and `intermediate_size`
    (the width of the dense feed-forward part) is unused in a mixture."""

    family: Family
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    norm_topk_prob: bool = True
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = True
    max_position_embeddings: int = 1024

    @property
    def is_moe(self) -> bool:
        """Whether the feed-forward parts are mixtures of experts."""
        return self.family == "qwen3_moe"


def config_from_hf(raw: dict[str, Any]) -> ModelConfig:
    """The configuration in a decoded `config.json`. Raises `BadInputError` naming the first field we cannot honour."""
    family = raw.get("model_type")
    if family not in _ARCHITECTURES:
        raise _refused("model_type", family, "expected qwen3 or qwen3_moe")
    _refuse_unsupported(raw)
    moe = family == "qwen3_moe"
    heads, hidden = _int(raw, "num_attention_heads"), _int(raw, "hidden_size")
    config = ModelConfig(
        family=family,
        vocab_size=_int(raw, "vocab_size"),
        hidden_size=hidden,
        num_layers=_int(raw, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=_int(raw, "num_key_value_heads"),
        head_dim=_int(raw, "head_dim") if raw.get("head_dim") is not None else hidden // heads,
        intermediate_size=_int(raw, "intermediate_size"),
        num_experts=_int(raw, "num_local_experts" if "num_local_experts" in raw else "num_experts") if moe else 0,
        num_experts_per_tok=_int(raw, "num_experts_per_tok") if moe else 0,
        moe_intermediate_size=_int(raw, "moe_intermediate_size") if moe else 0,
        norm_topk_prob=bool(raw.get("norm_topk_prob", False)) if moe else True,
        rope_theta=_rope_theta(raw),
        rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        max_position_embeddings=_int(raw, "max_position_embeddings"),
    )
    _check_sizes(config)
    return config


def config_to_hf(config: ModelConfig) -> dict[str, Any]:
    """The `config.json` that transformers and `config_from_hf` read back as `config`."""
    raw: dict[str, Any] = {
        "architectures": [_ARCHITECTURES[config.family]],
        "model_type": config.family,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": config.tie_word_embeddings,
        "max_position_embeddings": config.max_position_embeddings,
        "dtype": "bfloat16",
    }
    if config.is_moe:
        raw |= {
            "num_experts": config.num_experts,
            "num_experts_per_tok": config.num_experts_per_tok,
            "moe_intermediate_size": config.moe_intermediate_size,
            "norm_topk_prob": config.norm_topk_prob,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
    return raw


def _refuse_unsupported(raw: dict[str, Any]) -> None:
    for name, accepted in (
        ("hidden_act", ("silu",)),
        ("attention_bias", (False,)),
        ("attention_dropout", (0, 0.0)),
        ("use_sliding_window", (False,)),
        ("decoder_sparse_step", (1,)),
        ("mlp_only_layers", ([],)),
        ("rope_scaling", ()),
        ("quantization_config", ()),
    ):
        value = raw.get(name)
        if value is None or value in accepted or (name == "rope_scaling" and _is_default_rope(value)):
            continue
        raise _refused(name, value, "this changes the logits in a way that we do not compute")
    if raw.get("rope_parameters") is not None and not _is_default_rope(raw["rope_parameters"]):
        raise _refused("rope_parameters", raw["rope_parameters"], "only the default rotary embedding is computed")
    kinds = raw.get("layer_types")
    if kinds is not None and set(kinds) != {"full_attention"}:
        raise _refused("layer_types", kinds, "only full attention is computed")


def _is_default_rope(value: object) -> bool:
    return isinstance(value, dict) and value.get("rope_type", value.get("type", "default")) == "default"


def _rope_theta(raw: dict[str, Any]) -> float:
    nested = raw.get("rope_parameters") or {}
    return float(nested.get("rope_theta", raw.get("rope_theta", 10000.0)))


def _int(raw: dict[str, Any], name: str) -> int:
    value = raw.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _refused(name, value, "expected a positive whole number")
    return value


def _check_sizes(config: ModelConfig) -> None:
    if config.num_heads % config.num_kv_heads:
        raise _refused("num_key_value_heads", config.num_kv_heads, f"must divide the {config.num_heads} heads")
    if config.head_dim % 2:
        raise _refused("head_dim", config.head_dim, "rotary embedding needs an even size")
    if config.num_experts_per_tok > config.num_experts:
        raise _refused("num_experts_per_tok", config.num_experts_per_tok, f"there are {config.num_experts} experts")


def _refused(name: str, value: object, why: str) -> BadInputError:
    return BadInputError(f"Unsupported model configuration: {name} = {value!r}: {why}.", hint=_HINT, param=name)
