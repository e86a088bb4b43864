"""The learner: float32 masters, their rounding into the model that computes, and Adam's moments on disk.

The model always holds the masters rounded to BF16, which is what the engine serves; gradients at the rounded weights
go straight through to the masters (the straight-through estimator, arXiv:1308.3432). Steps smaller than a BF16 step
therefore add up instead of vanishing.

State lies in `STATE/VERSION.safetensors`, one file for each version that this trainer published. Training from a
version resumes from its file, after checking that the masters round to exactly the published bits. Without a file (a
version made elsewhere) the masters are the published numbers and the moments start at zero.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from ostinato.model import Transformer, config_from_hf, load_bits, round_to_bf16, state_to_bits
from ostinato.records import BadInputError, MissingError
from ostinato.weights import Arrays, WeightStore


class Learner:
    """A model to compute with and the masters to step. `resumed` says whether state was found on disk."""

    def __init__(self, model: Transformer, learning_rate: float, betas: tuple[float, float], clip_norm: float) -> None:
        self.model = model
        self.clip_norm = clip_norm
        self.resumed = False
        self._names = [name for name, _ in model.named_parameters()]
        self._rounded = [parameter for _, parameter in model.named_parameters()]
        self._masters = [parameter.detach().clone().requires_grad_() for parameter in self._rounded]
        self._adam = torch.optim.AdamW(self._masters, lr=learning_rate, betas=betas, weight_decay=0.0, foreach=True)
        self._round()

    def accumulate(self, gradients: Sequence[Tensor]) -> None:
        """Add gradients, in the order of the model's parameters, to those of the next step."""
        for rounded, gradient in zip(self._rounded, gradients, strict=True):
            rounded.grad = gradient if rounded.grad is None else rounded.grad.add_(gradient)

    def step(self) -> float:
        """Clip the gradients that lie on the model, step the masters, round them into the model. Returns the norm of
        the gradient before clipping; where it is not finite nothing is stepped."""
        for master, rounded in zip(self._masters, self._rounded, strict=True):
            master.grad = torch.zeros_like(master) if rounded.grad is None else rounded.grad
            rounded.grad = None
        norm = float(torch.nn.utils.clip_grad_norm_(self._masters, self.clip_norm))
        if np.isfinite(norm):
            self._adam.step()
            self._round()
        return norm

    def bits(self) -> Arrays:
        """The rounded weights, for publishing."""
        return state_to_bits(self.model)

    def save(self, path: Path) -> None:
        """Write masters and moments, whole or not at all."""
        tensors: dict[str, Tensor] = {}
        for name, master in zip(self._names, self._masters, strict=True):
            tensors[f"master.{name}"] = master.detach()
            for key, value in self._adam.state[master].items():
                tensors[f"{key}.{name}"] = value
        write_whole(path, save({name: tensor.contiguous() for name, tensor in tensors.items()}))

    def resume(self, path: Path, version: str) -> None:
        """Read masters and moments back. Raises `BadInputError` when the file is torn or belongs to other bits than
        those that the model holds."""
        hint = f"Move {path} aside; training then starts from the published weights of {version}."
        published = [parameter.detach().clone() for parameter in self._rounded]
        try:
            tensors = load_file(path)
            for name, master in zip(self._names, self._masters, strict=True):
                master.data.copy_(tensors.pop(f"master.{name}"))
                keys = [key for key in tensors if key.endswith(f".{name}") and key[: -len(name) - 1] in _ADAM_KEYS]
                self._adam.state[master] = {key[: -len(name) - 1]: tensors.pop(key) for key in keys}
        except (SafetensorError, KeyError, RuntimeError, OSError) as error:
            raise BadInputError(f"The trainer's state {path} cannot be read ({error}).", hint=hint) from error
        self._round()
        if not all(torch.equal(old, new) for old, new in zip(published, self._rounded, strict=True)):
            raise BadInputError(f"The trainer's state {path} does not round to version {version}.", hint=hint)
        self.resumed = True

    def _round(self) -> None:
        with torch.no_grad():
            for master, rounded in zip(self._masters, self._rounded, strict=True):
                rounded.copy_(round_to_bf16(master))


_ADAM_KEYS = ("step", "exp_avg", "exp_avg_sq")


def write_whole(path: Path, data: bytes) -> None:
    """Make `path` hold `data`, durably and wholly or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def state_path(folder: Path, version: str) -> Path:
    """Where the state of `version` lies."""
    return folder / f"{version}.safetensors"


def load_published(weights: WeightStore, version: str) -> Transformer:
    """A model with the published bits of `version`. Raises `MissingError` when its frame has no config.json."""
    frame = weights.frame(version)
    if "config.json" not in frame:
        raise MissingError(
            f"Version {version} was published without config.json, so its shape is unknown.",
            hint="Import the whole model folder: `ostinato serve --model DIR`.",
        )
    model = Transformer(config_from_hf(json.loads(frame["config.json"])))
    load_bits(model, weights.fetch(version))
    return model
