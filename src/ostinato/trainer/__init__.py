"""Learning, room of torch. In come sessions with rewards (from the store), versions (from the weights room) and token
sequences; out go new versions, with figures of how they were made. Policy gradients on single live sessions (`rl`),
their baseline and optimiser state. May import store, weights, model, render and records.
"""

from ostinato.trainer.rl_ledger import train_from_ledger
from ostinato.trainer.rl_train import RLConfig, RLResult, train_rl

__all__ = ["RLConfig", "RLResult", "train_from_ledger", "train_rl"]
