"""How well a model does the tasks, without servers: many episodes at once in memory, with the agent's own tools.

All episodes take a turn together: sample until each has ended its reply, carry out the calls, feed the results.
"""

from collections.abc import Sequence

import torch
from msgspec import Struct
from torch import Tensor

from ostinato.agent import TOOLS
from ostinato.model import KVCache, Transformer
from ostinato.records import Message, Task, ToolCall
from ostinato.render import TinyFormat
from ostinato.tinyworld import MemoryWorkspace, edited, judge

TURNS = 12
REPLY_TOKENS = 96
CONTEXT = 768


class EvalReport(Struct, frozen=True):
    """Shares over episodes, but for `valid_calls` (of all calls) and `tokens` (mean of sampled tokens). `by_kind` is
    the solved share of each kind of task; `junk` counts edits that add a comment, `unneeded_reads` reads of a file
    that holds neither the function nor a change, `tests_after` runs of the tests after an edit."""

    episodes: int
    temperature: float
    solved: float
    by_kind: dict[str, float]
    valid_calls: float
    asks: float
    junk: float
    unneeded_reads: float
    tests_after: float
    no_edit: float
    unfinished: float
    tokens: float


class _Episode:
    def __init__(self, task: Task, form: TinyFormat) -> None:
        self.task = task
        self.workspace = MemoryWorkspace(task.files)
        self.pending = form.open([Message("user", task.request)], TOOLS)
        self.length = 0
        self.reply = ""
        self.over = False
        self.finished = False
        self.sampled: list[int] = []
        self.tokens = self.calls = 0
        self.junk = self.unneeded = self.tested = False

    def act(self, form: TinyFormat) -> None:
        """Read the sampled reply; carry out its calls, or end."""
        parsed = form.parse(self.sampled, TOOLS)
        self.tokens += len(self.sampled)
        tail = self.sampled[-1:]
        closing = form.close(self.sampled)
        self.sampled = []
        self.reply = parsed.content
        if not parsed.tool_calls:
            self.over, self.finished = True, not parsed.invalid
            return
        # The last sampled token is not in the cache yet.
        self.pending = tail + closing
        for call in parsed.tool_calls:
            self._note(call)
            self.pending += form.message_ids(Message("tool", self.workspace.call(call), tool_call_id=call.id))
        self.pending += form.generation_prompt()

    def _note(self, call: ToolCall) -> None:
        self.calls += 1
        arguments = {key: str(value) for key, value in call.arguments.items()}
        path = arguments.get("path", "")
        if call.name == "edit_file":
            self.junk |= arguments.get("new", "").count("#") > arguments.get("old", "").count("#")
        elif call.name == "read_file":
            needed = {self.task.tags.get("module"), *self.task.reference}
            self.unneeded |= path in self.task.files and path not in needed
        elif call.name == "run_tests":
            self.tested |= edited(self.task, self.workspace.files)


@torch.inference_mode()
def evaluate_model(
    model: Transformer, form: TinyFormat, tasks: Sequence[Task], *, temperature: float, seed: int = 0, rows: int = 64
) -> EvalReport:
    """Run every task once (`rows` at a time) and report; temperature 0 is greedy. Weights are used as they are."""
    rng = torch.Generator().manual_seed(seed)
    episodes = [_Episode(task, form) for task in tasks]
    for start in range(0, len(episodes), rows):
        _run(model, form, episodes[start : start + rows], temperature, rng)
    return _report(episodes, temperature)


def _run(model: Transformer, form: TinyFormat, batch: list[_Episode], temperature: float, rng: torch.Generator) -> None:
    cache = KVCache(model.config, len(batch), CONTEXT)
    for _ in range(TURNS):
        for episode in batch:
            if not episode.over and episode.length + len(episode.pending) + REPLY_TOKENS > CONTEXT:
                episode.over = True
        live = [episode for episode in batch if not episode.over]
        if not live:
            return
        _sample_replies(model, form, batch, cache, temperature, rng)
        for episode in live:
            episode.act(form)


def _sample_replies(
    model: Transformer,
    form: TinyFormat,
    batch: list[_Episode],
    cache: KVCache,
    temperature: float,
    rng: torch.Generator,
) -> None:
    """One reply for each live episode; a finished row goes along with padding, which nothing reads."""
    waiting = [not episode.over for episode in batch]
    for step in range(REPLY_TOKENS):
        fed = [episode.pending if on else [form.pad] for episode, on in zip(batch, waiting, strict=True)]
        logits = _feed(model, batch, fed, cache, form.pad)
        drawn = _draw(logits, temperature, rng).tolist()
        for row, episode in enumerate(batch):
            if not waiting[row]:
                continue
            episode.length += len(episode.pending)
            episode.pending = [drawn[row]]
            episode.sampled.append(drawn[row])
            waiting[row] = drawn[row] != form.end and step + 1 < REPLY_TOKENS
        if not any(waiting):
            return


def _feed(model: Transformer, batch: list[_Episode], fed: list[list[int]], cache: KVCache, pad: int) -> Tensor:
    """Logits [B, V] after each row's new tokens."""
    width = max(len(ids) for ids in fed)
    ids_BT = torch.tensor([ids + [pad] * (width - len(ids)) for ids in fed])
    starts = torch.tensor([episode.length for episode in batch])
    positions = (starts[:, None] + torch.arange(width)).clamp(max=CONTEXT - 1)
    hidden = model.hidden(ids_BT, positions_BT=positions, cache=cache).hidden_BTH
    last = torch.tensor([len(ids) - 1 for ids in fed])
    return model.head(hidden[torch.arange(len(fed)), last])


def _draw(logits: Tensor, temperature: float, rng: torch.Generator) -> Tensor:
    if temperature == 0:
        return logits.argmax(dim=-1)
    return torch.multinomial((logits / temperature).softmax(dim=-1), 1, generator=rng)[:, 0]


def _report(episodes: list[_Episode], temperature: float) -> EvalReport:
    solved = [one.finished and judge(one.task, one.workspace.files, one.reply) for one in episodes]
    changed = [edited(one.task, one.workspace.files) for one in episodes]
    kinds: dict[str, list[bool]] = {}
    for one, good in zip(episodes, solved, strict=True):
        kinds.setdefault(one.task.kind, []).append(good)
    calls = sum(one.calls for one in episodes)
    invalid = sum(one.workspace.invalid_calls for one in episodes)
    wanted = [(one, did) for one, did in zip(episodes, changed, strict=True) if one.task.wants_edit]
    return EvalReport(
        episodes=len(episodes),
        temperature=temperature,
        solved=_share(solved),
        by_kind={kind: _share(found) for kind, found in sorted(kinds.items())},
        valid_calls=round(1 - invalid / max(calls, 1), 4),
        asks=_share([one.finished and not did and one.reply.endswith("?") for one, did in wanted]),
        junk=_share([one.junk for one in episodes]),
        unneeded_reads=_share([one.unneeded for one in episodes]),
        tests_after=_share([one.tested for one in episodes]),
        no_edit=_share([not did for _, did in wanted]),
        unfinished=_share([not one.finished for one in episodes]),
        tokens=round(sum(one.tokens for one in episodes) / max(len(episodes), 1), 1),
    )


def _share(found: Sequence[bool]) -> float:
    return round(sum(found) / max(len(found), 1), 4)
