# ruff: noqa: N815 - shape suffixes name the fields too
"""The whole model: ids in; logits, chosen experts and router probabilities out.

Shapes: B rows, T positions, V vocabulary, H hidden, L layers with experts, E experts, k experts for each token,
N tokens (B x T).
"""

from typing import NamedTuple, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from ostinato.model.attention import GroupedAttention, KVCache, LatentAttention
from ostinato.model.config import ModelConfig
from ostinato.model.layers import FeedForward, Linear, RMSNorm
from ostinato.model.moe import MixtureOfExperts
from ostinato.model.rope import rotary
from ostinato.records import BadInputError


class ForwardOutput(NamedTuple):
    """`experts_BTLK` int64 and `router_probs_BTLE` float32; both have E = k = 0 for a dense model."""

    logits_BTV: Tensor
    experts_BTLK: Tensor
    router_probs_BTLE: Tensor


class HiddenOutput(NamedTuple):
    """As `ForwardOutput`, before the output matrix: normalised hidden states [B, T, H]."""

    hidden_BTH: Tensor
    experts_BTLK: Tensor
    router_probs_BTLE: Tensor


class Layer(nn.Module):
    """One decoder layer."""

    def __init__(self, config: ModelConfig, number: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = LatentAttention(config) if config.latent else GroupedAttention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = (
            MixtureOfExperts(config)
            if config.is_moe and number >= config.num_dense_layers
            else FeedForward(config.hidden_size, config.intermediate_size)
        )


class Body(nn.Module):
    """Everything but the output matrix; exists so that parameter names are Hugging Face's."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, number) for number in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class Transformer(nn.Module):
    """Qwen3, Qwen3-MoE or DeepSeek-V3. Parameters carry Hugging Face's names, except that the experts of a layer are
    stacked (`naming.py` maps them). `seed` fixes the initial weights: normal with deviation 0.02, smaller towards the
    residual stream, as in GPT-2."""

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.model = Body(config)
        if not config.tie_word_embeddings:
            self.lm_head = Linear(config.hidden_size, config.vocab_size)
        self._initialise(seed)

    def forward(
        self,
        ids_BT: Tensor,
        *,
        positions_BT: Tensor | None = None,
        segment_ids_BT: Tensor | None = None,
        experts_BTLK: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> ForwardOutput:
        """Logits for the next token at every position.

        `segment_ids_BT`: packed documents; a position attends only to earlier ones of its own number (padding is -1).
        Positions then count from 0 in each document unless given. `experts_BTLK`: use these experts (expert replay);
        rows of -1 choose for themselves. `cache`: incremental decoding, `positions_BT` is then required and says where
        the new tokens go; padding after a row's last new token is harmless. Raises `BadInputError` on bad shapes."""
        hidden = self.hidden(
            ids_BT, positions_BT=positions_BT, segment_ids_BT=segment_ids_BT, experts_BTLK=experts_BTLK, cache=cache
        )
        return ForwardOutput(self.head(hidden.hidden_BTH), hidden.experts_BTLK, hidden.router_probs_BTLE)

    def hidden(
        self,
        ids_BT: Tensor,
        *,
        positions_BT: Tensor | None = None,
        segment_ids_BT: Tensor | None = None,
        experts_BTLK: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> HiddenOutput:
        """The same without the output matrix, for callers that need few positions' logits (see `head`)."""
        self._check(ids_BT, positions_BT, experts_BTLK, cache)
        if positions_BT is None:
            positions_BT = _positions(ids_BT, segment_ids_BT)
        at = rotary(positions_BT, self.config)
        mask = _mask(positions_BT, segment_ids_BT, cache)
        x = self.model.embed_tokens(ids_BT)
        experts: list[Tensor] = []
        probs: list[Tensor] = []
        for number, module in enumerate(self.model.layers):
            layer = cast(Layer, module)
            x = x + layer.self_attn(layer.input_layernorm(x), at, mask, positions_BT, number, cache)
            x, routed = self._mlp(layer, x, None if experts_BTLK is None else experts_BTLK[:, :, len(experts)])
            if routed is not None:
                experts.append(routed[0])
                probs.append(routed[1])
        B, T = ids_BT.shape
        none = x.new_zeros((B, T, 0, 0), dtype=torch.float32)
        return HiddenOutput(
            self.model.norm(x),
            torch.stack(experts, dim=2) if experts else none.long(),
            torch.stack(probs, dim=2) if probs else none,
        )

    def head(self, hidden: Tensor) -> Tensor:
        """Logits [..., V] of hidden states [..., H]."""
        tied = self.config.tie_word_embeddings
        return F.linear(hidden, self.model.embed_tokens.weight if tied else self.lm_head.weight)

    def use_dense_experts(self, dense: bool) -> None:
        """Compute all experts for all tokens (`True`) or each expert for its own tokens; see moe.py."""
        for module in self.modules():
            if isinstance(module, MixtureOfExperts):
                module.dense = dense

    def require_plausible_replay(self, plausibility: float) -> None:
        """Replace replayed experts that this router finds implausible; see `MixtureOfExperts`. 0 replays them all."""
        for module in self.modules():
            if isinstance(module, MixtureOfExperts):
                module.plausibility = plausibility

    def _mlp(self, layer: Layer, x: Tensor, replay_BTk: Tensor | None) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        normed = layer.post_attention_layernorm(x)
        if not isinstance(layer.mlp, MixtureOfExperts):
            return x + layer.mlp(normed), None
        B, T, H = x.shape
        out, chosen, probs = layer.mlp(
            normed.reshape(B * T, H), None if replay_BTk is None else replay_BTk.reshape(B * T, -1)
        )
        return x + out.view(B, T, H), (chosen.view(B, T, -1), probs.view(B, T, -1))

    def _check(
        self, ids_BT: Tensor, positions_BT: Tensor | None, experts_BTLK: Tensor | None, cache: KVCache | None
    ) -> None:
        config = self.config
        if ids_BT.dim() != 2:
            raise BadInputError(f"ids have the shape {tuple(ids_BT.shape)}.", hint="Give a batch of rows: [B, T].")
        if cache is not None and positions_BT is None:
            raise BadInputError("A cache was given without positions.", hint="Pass positions_BT of the new tokens.")
        wanted = (*ids_BT.shape, config.num_moe_layers, config.num_experts_per_tok)
        if experts_BTLK is not None and tuple(experts_BTLK.shape) != wanted:
            raise BadInputError(
                f"Experts to replay have the shape {tuple(experts_BTLK.shape)}, this model and batch need {wanted}.",
                hint="Use experts recorded with a model of the same layers and experts for each token.",
            )

    def _initialise(self, seed: int) -> None:
        rng = torch.Generator().manual_seed(seed)
        small = 0.02 / (2 * self.config.num_layers) ** 0.5
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.dim() > 1:
                    residual = "o_proj" in name or "down_proj" in name
                    parameter.normal_(0.0, small if residual else 0.02, generator=rng)


def load_balance_loss(experts_BTLK: Tensor, probs_BTLE: Tensor, mask_BT: Tensor | None = None) -> Tensor:
    """The auxiliary loss that spreads tokens over experts: E x sum over experts of (share of choices x mean
    probability), summed over the k choices, over the tokens of all layers where `mask_BT` is true. It is k when the
    load is even. Source: Switch Transformers (arXiv:2101.03961), eq. 4, as in transformers."""
    E = probs_BTLE.shape[-1]
    weight = torch.ones(probs_BTLE.shape[:2], device=probs_BTLE.device) if mask_BT is None else mask_BT.float()
    total = weight.sum() * probs_BTLE.shape[2]
    chosen_BTLE = F.one_hot(experts_BTLK, E).sum(dim=3).float()
    share = torch.einsum("btle,bt->e", chosen_BTLE, weight) / total
    mean = torch.einsum("btle,bt->e", probs_BTLE, weight) / total
    return E * (share * mean).sum()


def _positions(ids_BT: Tensor, segment_ids_BT: Tensor | None) -> Tensor:
    along = torch.arange(ids_BT.shape[1], device=ids_BT.device).expand_as(ids_BT)
    if segment_ids_BT is None:
        return along
    starts = torch.ones_like(segment_ids_BT, dtype=torch.bool)
    starts[:, 1:] = segment_ids_BT[:, 1:] != segment_ids_BT[:, :-1]
    return along - torch.where(starts, along, 0).cummax(dim=1).values


def _mask(positions_BT: Tensor, segment_ids_BT: Tensor | None, cache: KVCache | None) -> Tensor | None:
    if cache is not None:
        cache.reach(positions_BT)
        slots = torch.arange(cache.used, device=positions_BT.device)
        return (slots <= positions_BT[..., None])[:, None]
    if segment_ids_BT is None:
        return None
    T = positions_BT.shape[1]
    causal = torch.ones(T, T, dtype=torch.bool, device=positions_BT.device).tril()
    return ((segment_ids_BT[:, :, None] == segment_ids_BT[:, None, :]) & causal)[:, None]
