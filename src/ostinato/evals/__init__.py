"""The bench and the gate. What held-out persons committed comes in from the store; bench tasks, paired results and the
decision on a candidate go out. May import records, episodes, agent, rewards, envs.client, store and weights.
"""

from ostinato.evals.bench import Proposal, grow_bench, proposals, refusal
from ostinato.evals.compare import EvaluationConfig, Side, evaluate
from ostinato.evals.gate import GateAnswer, GateConfig, GateResult, judge_gate

__all__ = [
    "EvaluationConfig",
    "GateAnswer",
    "GateConfig",
    "GateResult",
    "Proposal",
    "Side",
    "evaluate",
    "grow_bench",
    "judge_gate",
    "proposals",
    "refusal",
]
