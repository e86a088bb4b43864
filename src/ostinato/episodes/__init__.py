"""Many episodes at once. Tasks and the address of a model come in; one result for each episode goes out, a failed one
named by the boundary at which it failed. May import agent, envs.client, rewards, store, weights and records.
"""

from ostinato.episodes.run import EpisodeConfig, passes, run_episode, run_episodes

__all__ = ["EpisodeConfig", "passes", "run_episode", "run_episodes"]
