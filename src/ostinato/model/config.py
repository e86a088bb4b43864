"""The shape of a model. `hf_config.py` reads and writes it as Hugging Face's `config.json`."""

from typing import Literal

from msgspec import Struct

Family = Literal["qwen3", "qwen3_moe", "deepseek_v3"]


class Yarn(Struct, frozen=True, forbid_unknown_fields=True):
    """A context stretched by `factor` over that of the first training (YaRN, arXiv:2309.00071); names are those of
    Hugging Face's rope parameters."""

    factor: float
    original_max_position_embeddings: int
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True


class Latent(Struct, frozen=True, forbid_unknown_fields=True):
    """Multi-head latent attention (MLA, arXiv:2405.04434): keys and values of a position are made from one vector of
    `kv_lora_rank` numbers and one rotated key of `qk_rope_head_dim` that all heads share. `q_lora_rank` 0 makes queries
    by one matrix."""

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    rope_interleave: bool = True


class Groups(Struct, frozen=True, forbid_unknown_fields=True):
    """Routing by sigmoid scores with a learned bias, within the best `topk_group` of `n_group` groups of experts; the
    shares are scaled by `routed_scaling_factor` (DeepSeek-V3, arXiv:2412.19437)."""

    n_group: int
    topk_group: int
    routed_scaling_factor: float


class ModelConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Sizes of a transformer. The expert fields are 0 for a dense model, where `intermediate_size` is the width of the
    feed-forward part; in a mixture it is that of the first `num_dense_layers` layers, which have no experts.

    `latent` replaces grouped heads (`num_kv_heads` then equals `num_heads`, and `head_dim` the rotated size), `groups`
    the softmax router."""

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
    num_dense_layers: int = 0
    num_shared_experts: int = 0
    yarn: Yarn | None = None
    latent: Latent | None = None
    groups: Groups | None = None

    @property
    def is_moe(self) -> bool:
        """Whether there are mixtures of experts."""
        return self.num_experts > 0

    @property
    def num_moe_layers(self) -> int:
        """How many layers choose experts: the L of recorded and replayed choices."""
        return self.num_layers - self.num_dense_layers if self.is_moe else 0

    @property
    def rotary_dim(self) -> int:
        """The part of a head that is rotated by its position."""
        return self.latent.qk_rope_head_dim if self.latent else self.head_dim
