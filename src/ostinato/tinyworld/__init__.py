"""The embedded default world: a task generator, a scripted demonstrator, and simulated persons (clients over HTTP,
nothing else). A split and a number come in; tasks and demonstrations go out. May import agent, feedback, search and
envs.client; its sub-room `recipe/` [torch] trains the seed model and may also import model, trainer, render, weights.
"""

from ostinato.tinyworld.demonstrator import BASE_HABITS, Habits, Trajectory, demonstrate, sample_trajectories
from ostinato.tinyworld.memory import MemoryWorkspace, edited, judge, solved
from ostinato.tinyworld.names import SPLITS, Split
from ostinato.tinyworld.persons import PersonsConfig, PersonsCounts, RequestsConfig, run_persons, run_requests
from ostinato.tinyworld.persons_session import Truth
from ostinato.tinyworld.population import Person, Population, Visit
from ostinato.tinyworld.tasks import generate_task
from ostinato.tinyworld.templates import SHOWN, TEMPLATES, WITHHELD, Template

__all__ = [
    "BASE_HABITS",
    "SHOWN",
    "SPLITS",
    "TEMPLATES",
    "WITHHELD",
    "Habits",
    "MemoryWorkspace",
    "Person",
    "PersonsConfig",
    "PersonsCounts",
    "Population",
    "RequestsConfig",
    "Split",
    "Template",
    "Trajectory",
    "Truth",
    "Visit",
    "demonstrate",
    "edited",
    "generate_task",
    "judge",
    "run_persons",
    "run_requests",
    "sample_trajectories",
    "solved",
]
