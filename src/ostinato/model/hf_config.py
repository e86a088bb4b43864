"""Hugging Face's `config.json`, in and out.

What we cannot run exactly is refused by the name of the field; nothing is ignored that changes the logits.
"""

from collections.abc import Iterable
from typing import Any, get_args

import msgspec

from ostinato.model.config import Family, Groups, Latent, ModelConfig, Yarn
from ostinato.records import BadInputError

_ARCHITECTURES: dict[Family, str] = {
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
}
_HINT = "Use a plain Qwen3, Qwen3-MoE or DeepSeek-V3 folder, or serve this model with another engine."

_Accepted = tuple[tuple[str, tuple[object, ...]], ...]
_PLAIN: _Accepted = (
    ("hidden_act", ("silu",)),
    ("attention_bias", (False,)),
    ("attention_dropout", (0, 0.0)),
    ("quantization_config", ()),
)
_QWEN: _Accepted = (
    ("use_sliding_window", (False,)),
    ("decoder_sparse_step", (1,)),
    ("mlp_only_layers", ([],)),
)
_DEEPSEEK: _Accepted = (
    ("scoring_func", ("sigmoid",)),
    ("topk_method", ("noaux_tc",)),
    ("moe_layer_freq", (1,)),
)


def config_from_hf(raw: dict[str, Any]) -> ModelConfig:
    """The configuration in a decoded `config.json`. Raises `BadInputError` naming the first field we cannot honour."""
    family = raw.get("model_type")
    if family not in _ARCHITECTURES:
        raise _refused("model_type", family, f"expected one of {', '.join(get_args(Family))}")
    _refuse_others(raw, _PLAIN + (_DEEPSEEK if family == "deepseek_v3" else _QWEN))
    kinds = raw.get("layer_types")
    if kinds is not None and set(kinds) != {"full_attention"}:
        raise _refused("layer_types", kinds, "only full attention is computed")
    theta, yarn = _rope(raw)
    config = ModelConfig(
        family=family,
        vocab_size=_int(raw, "vocab_size"),
        hidden_size=_int(raw, "hidden_size"),
        num_layers=_int(raw, "num_hidden_layers"),
        num_heads=_int(raw, "num_attention_heads"),
        num_kv_heads=_int(raw, "num_key_value_heads"),
        head_dim=_head_dim(raw),
        intermediate_size=_int(raw, "intermediate_size"),
        rope_theta=theta,
        rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        max_position_embeddings=_int(raw, "max_position_embeddings"),
        yarn=yarn,
    )
    if family == "qwen3_moe":
        config = msgspec.structs.replace(config, **_experts(raw, "num_experts", normalised=False))
    elif family == "deepseek_v3":
        config = msgspec.structs.replace(config, **_deepseek_parts(raw))
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
        "rope_theta": config.rope_theta,
        "rope_parameters": _rope_parameters(config),
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": config.tie_word_embeddings,
        "max_position_embeddings": config.max_position_embeddings,
        "dtype": "bfloat16",
    }
    if config.family == "deepseek_v3":
        return raw | _deepseek_fields(config)
    raw["use_sliding_window"] = False
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


def _experts(raw: dict[str, Any], count: str, *, normalised: bool) -> dict[str, Any]:
    """`count` names the number of experts, `normalised` is what a file without `norm_topk_prob` means."""
    return {
        "num_experts": _int(raw, "num_local_experts" if "num_local_experts" in raw else count),
        "num_experts_per_tok": _int(raw, "num_experts_per_tok"),
        "moe_intermediate_size": _int(raw, "moe_intermediate_size"),
        "norm_topk_prob": bool(raw.get("norm_topk_prob", normalised)),
    }


def _deepseek_parts(raw: dict[str, Any]) -> dict[str, Any]:
    return {
        **_experts(raw, "n_routed_experts", normalised=True),
        "num_dense_layers": _int(raw, "first_k_dense_replace", least=0),
        "num_shared_experts": _int(raw, "n_shared_experts"),
        "latent": Latent(
            q_lora_rank=0 if raw.get("q_lora_rank") is None else _int(raw, "q_lora_rank"),
            kv_lora_rank=_int(raw, "kv_lora_rank"),
            qk_nope_head_dim=_int(raw, "qk_nope_head_dim"),
            qk_rope_head_dim=_int(raw, "qk_rope_head_dim"),
            v_head_dim=_int(raw, "v_head_dim"),
            rope_interleave=bool(raw.get("rope_interleave", True)),
        ),
        "groups": Groups(
            n_group=_int(raw, "n_group"),
            topk_group=_int(raw, "topk_group"),
            routed_scaling_factor=float(raw.get("routed_scaling_factor", 1.0)),
        ),
    }


def _deepseek_fields(config: ModelConfig) -> dict[str, Any]:
    latent, groups = config.latent, config.groups
    assert latent is not None and groups is not None, "every DeepSeek-V3 has them"
    return {
        "head_dim": latent.qk_rope_head_dim,
        "n_routed_experts": config.num_experts,
        "num_experts_per_tok": config.num_experts_per_tok,
        "moe_intermediate_size": config.moe_intermediate_size,
        "norm_topk_prob": config.norm_topk_prob,
        "first_k_dense_replace": config.num_dense_layers,
        "n_shared_experts": config.num_shared_experts,
        "num_nextn_predict_layers": 0,
        "moe_layer_freq": 1,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        **msgspec.structs.asdict(latent),
        "q_lora_rank": latent.q_lora_rank or None,
        **msgspec.structs.asdict(groups),
    }


def _rope(raw: dict[str, Any]) -> tuple[float, Yarn | None]:
    """Base and stretch. Older files hold `rope_theta` and `rope_scaling`, newer ones `rope_parameters`."""
    name = "rope_parameters" if raw.get("rope_parameters") is not None else "rope_scaling"
    given = raw.get(name)
    if given is None:
        return float(raw.get("rope_theta", 10000.0)), None
    if not isinstance(given, dict):
        raise _refused(name, given, "expected an object")
    theta = float(given.get("rope_theta", raw.get("rope_theta", 10000.0)))
    kind = given.get("rope_type", given.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind != "yarn":
        raise _refused(name, given, "only the default rotary embedding and yarn are computed")
    fields = {key: value for key, value in given.items() if key not in ("rope_type", "type", "rope_theta")}
    try:
        return theta, msgspec.convert({key: value for key, value in fields.items() if value is not None}, Yarn)
    except msgspec.ValidationError as error:
        raise _refused(name, given, str(error)) from None


def _rope_parameters(config: ModelConfig) -> dict[str, Any]:
    if config.yarn is None:
        return {"rope_type": "default", "rope_theta": config.rope_theta}
    fields = {name: value for name, value in msgspec.structs.asdict(config.yarn).items() if value is not None}
    return {"rope_type": "yarn", "rope_theta": config.rope_theta, **fields}


def _refuse_others(raw: dict[str, Any], accepted: Iterable[tuple[str, tuple[object, ...]]]) -> None:
    for name, values in accepted:
        value = raw.get(name)
        if value is not None and value not in values:
            raise _refused(name, value, "this changes the logits in a way that we do not compute")


def _head_dim(raw: dict[str, Any]) -> int:
    if raw["model_type"] == "deepseek_v3":
        return _int(raw, "qk_rope_head_dim")
    if raw.get("head_dim") is not None:
        return _int(raw, "head_dim")
    return _int(raw, "hidden_size") // _int(raw, "num_attention_heads")


def _int(raw: dict[str, Any], name: str, least: int = 1) -> int:
    value = raw.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise _refused(name, value, f"expected a whole number from {least} on")
    return value


def _check_sizes(config: ModelConfig) -> None:
    if config.num_heads % config.num_kv_heads:
        raise _refused("num_key_value_heads", config.num_kv_heads, f"must divide the {config.num_heads} heads")
    if config.latent and config.num_kv_heads != config.num_heads:
        raise _refused("num_key_value_heads", config.num_kv_heads, f"latent attention has {config.num_heads}")
    if config.rotary_dim % 2:
        name = "qk_rope_head_dim" if config.latent else "head_dim"
        raise _refused(name, config.rotary_dim, "rotary embedding needs an even size")
    if config.num_experts_per_tok > config.num_experts:
        raise _refused("num_experts_per_tok", config.num_experts_per_tok, f"there are {config.num_experts} experts")
    if config.is_moe and config.num_dense_layers >= config.num_layers:
        raise _refused("first_k_dense_replace", config.num_dense_layers, f"there are {config.num_layers} layers")
    if config.groups is not None:
        _check_groups(config, config.groups)


def _check_groups(config: ModelConfig, groups: Groups) -> None:
    if config.num_experts % groups.n_group or config.num_experts < 2 * groups.n_group:
        raise _refused("n_group", groups.n_group, f"must divide the {config.num_experts} experts by 2 or more")
    if groups.topk_group > groups.n_group:
        raise _refused("topk_group", groups.topk_group, f"there are {groups.n_group} groups")
    reachable = groups.topk_group * config.num_experts // groups.n_group
    if config.num_experts_per_tok > reachable:
        raise _refused("num_experts_per_tok", config.num_experts_per_tok, f"{reachable} experts can be reached")


def _refused(name: str, value: object, why: str) -> BadInputError:
    return BadInputError(f"Unsupported model configuration: {name} = {value!r}: {why}.", hint=_HINT, param=name)
