"""Evaluation in memory: what is counted, and that sampling is that of the model."""

from pathlib import Path

import torch

from ostinato.agent import TOOLS
from ostinato.model import ModelConfig, Transformer
from ostinato.records import Message, ToolCall
from ostinato.render import TinyFormat, Tokenizer
from ostinato.tinyworld import generate_task
from ostinato.tinyworld.recipe import evaluate_model
from ostinato.tinyworld.recipe.evaluate import _Episode, _report

MODEL = ModelConfig("qwen3_moe", 1024, 32, 1, 2, 1, 16, 48, 4, 2, 24)


def form_in(folder: Path) -> TinyFormat:
    """The chat format over the tests' tokenizer."""
    return TinyFormat(Tokenizer.from_folder(folder))


def say(form: TinyFormat, episode: _Episode, content: str = "", **call: str) -> None:
    """Put words into the model's mouth."""
    name = call.pop("tool", "")
    calls = (ToolCall("call_0", name, dict(call)),) if name else ()
    episode.sampled = form.message_ids(Message("assistant", content, calls), TOOLS)[1:]
    episode.act(form)


def test_a_played_solution_is_counted_as_solved(tokenizer_folder: Path) -> None:
    """The reference written by tool calls, with a needless read, an invalid call and a junk comment on the way."""
    form = form_in(tokenizer_folder)
    task = next(
        one for one in (generate_task("held_out", number) for number in range(99)) if one.kind == "bug" and one.tests
    )
    solved, asked = _Episode(task, form), _Episode(task, form)
    say(form, solved, tool="read_file", path=next(path for path in task.files if path.startswith("test_")))
    say(form, solved, tool="no_such_tool", path="x")
    for path, text in task.reference.items():
        say(form, solved, tool="edit_file", path=path, old=task.files[path], new=text)
        say(form, solved, tool="edit_file", path=path, old=text, new=text + "# fixed\n")
    say(form, solved, tool="run_tests")
    say(form, solved, "Fixed.")
    say(form, asked, "What should it do?")
    report = _report([solved, asked], 1.0)
    assert report.solved == report.junk == report.unneeded_reads == report.tests_after == 0.5
    assert report.asks == report.no_edit == 0.5
    assert report.by_kind == {"bug": 0.5}
    assert report.valid_calls == 0.8
    assert report.unfinished == 0.0


def test_pending_tokens_continue_the_context_exactly(tokenizer_folder: Path) -> None:
    """What is fed over the turns is the rendering of the whole conversation."""
    form = form_in(tokenizer_folder)
    task = generate_task("held_out", 1)
    episode = _Episode(task, form)
    fed = list(episode.pending)
    reply = form.message_ids(Message("assistant", "", (ToolCall("call_0", "run_tests", {}),)), TOOLS)[1:]
    episode.sampled = list(reply)
    episode.act(form)
    fed += reply[:-1] + episode.pending
    result = Message("tool", episode.workspace.call(ToolCall("again", "run_tests", {})))
    call = Message("assistant", "", (ToolCall("call_0", "run_tests", {}),))
    assert fed == form.open([Message("user", task.request), call, result], TOOLS)


def test_greedy_evaluation_follows_the_model(tokenizer_folder: Path) -> None:
    """The batch gives the tokens that the whole forward gives one by one, and twice the same report."""
    form = form_in(tokenizer_folder)
    model = Transformer(MODEL, seed=1)
    with torch.no_grad():  # a model that soon ends its reply
        model.model.embed_tokens.weight[form.end] *= 3
    tasks = [generate_task("held_out", number) for number in range(6)]
    report = evaluate_model(model, form, tasks, temperature=0.0)
    assert report.episodes == 6
    assert report == evaluate_model(model, form, tasks, temperature=0.0, rows=2)
    assert report.tokens == sum(len(greedy(model, form, task.request)) for task in tasks) / 6 or report.valid_calls < 1


def greedy(model: Transformer, form: TinyFormat, request: str) -> list[int]:
    """One reply by whole forwards."""
    ids = form.open([Message("user", request)], TOOLS)
    drawn: list[int] = []
    while len(drawn) < 96 and drawn[-1:] != [form.end]:
        with torch.inference_mode():
            drawn.append(int(model(torch.tensor([ids + drawn])).logits_BTV[0, -1].argmax()))
    return drawn
