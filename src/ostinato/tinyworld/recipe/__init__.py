"""How the seed model is made, a sub-room of torch. The running Python's standard library and the demonstrator's
trajectories come in; a Hugging Face folder with its tokenizer, log and sources goes out. May import what tinyworld may,
and model, trainer, render and weights.
"""

from ostinato.tinyworld.recipe.data import SeedData, trajectory_document
from ostinato.tinyworld.recipe.evaluate import EvalReport, evaluate_model
from ostinato.tinyworld.recipe.tokenizer import train_tokenizer

__all__ = ["EvalReport", "SeedData", "evaluate_model", "train_tokenizer", "trajectory_document"]
