"""The bench and the gate. What held-out persons committed comes in from the store; bench tasks, paired results and the
decision on a candidate go out. May import records, episodes, agent, rewards, envs.client, store and weights.
"""

from ostinato.evals.gate import GateAnswer, GateConfig, GateResult, judge_gate

__all__ = ["GateAnswer", "GateConfig", "GateResult", "judge_gate"]
