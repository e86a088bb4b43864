"""Training, room of torch. Recorded sessions with rewards, or demonstrations, come in with the weights they start from;
new weights go out. May import store, weights, model, render and records.
"""

from ostinato.trainer.optim import MatrixOptimizer, Muon, OptimConfig
from ostinato.trainer.packing import Document, PackedBatch, bucket, pack
from ostinato.trainer.rl_ledger import train_from_ledger
from ostinato.trainer.rl_train import RLConfig, RLResult, train_rl
from ostinato.trainer.sft import Checkpoint, SftConfig, SftLog, StepBatches, step_sft, train_sft

__all__ = [
    "Checkpoint",
    "Document",
    "MatrixOptimizer",
    "Muon",
    "OptimConfig",
    "PackedBatch",
    "RLConfig",
    "RLResult",
    "SftConfig",
    "SftLog",
    "StepBatches",
    "bucket",
    "pack",
    "step_sft",
    "train_from_ledger",
    "train_rl",
    "train_sft",
]
