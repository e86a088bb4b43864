"""The workspace in memory and the judge."""

from ostinato.records import Task, ToolCall
from ostinato.tinyworld import MemoryWorkspace, edited, generate_task, judge, solved


def a_task(kind: str) -> Task:
    """The first held-out task of a kind."""
    return next(task for number in range(200) if (task := generate_task("held_out", number)).kind == kind)


def call(workspace: MemoryWorkspace, name: str, **arguments: str) -> str:
    """One tool call."""
    return workspace.call(ToolCall(id="call_1", name=name, arguments=arguments))


def test_tools_answer_as_documented() -> None:
    """Search, read, edit and the tests answer with the harness's texts."""
    workspace = MemoryWorkspace({"a.py": "x = 1\ny = 1\n", "test_a.py": "from a import x\nassert x == 2\n"})
    assert call(workspace, "search", pattern="= 1") == "a.py:1: x = 1\na.py:2: y = 1"
    assert call(workspace, "search", pattern="zzz") == "no match"
    assert call(workspace, "read_file", path="a.py") == "x = 1\ny = 1\n"
    assert call(workspace, "read_file", path="b.py") == "error: no such file b.py"
    assert call(workspace, "edit_file", path="b.py", old="x", new="y") == "error: no such file b.py"
    assert call(workspace, "edit_file", path="a.py", old="= 1", new="= 2") == "error: old text found 2 times"
    assert call(workspace, "edit_file", path="a.py", old="z", new="y") == "error: old text not found"
    assert call(workspace, "run_tests") == "failed: assert x == 2"
    assert call(workspace, "edit_file", path="a.py", old="x = 1", new="x = 2") == "ok"
    assert call(workspace, "run_tests") == "passed"
    assert workspace.files["a.py"] == "x = 2\ny = 1\n"


def test_invalid_calls_are_counted() -> None:
    """A call that no tool fits is refused with a reason and counted."""
    workspace = MemoryWorkspace({})
    assert call(workspace, "fly").startswith("error: invalid call: ")
    assert call(workspace, "search").startswith("error: invalid call: ")
    assert workspace.invalid_calls == 2


def test_judge_of_an_edit() -> None:
    """An edit is judged by the hidden tests over the files that the agent left."""
    task = a_task("bug")
    assert not judge(task, task.files, "Fixed.")
    assert judge(task, {**task.files, **task.reference}, "Fixed.")
    assert edited(task, {**task.files, **task.reference})
    assert not edited(task, dict(task.files))


def test_tampering_with_the_test_script_does_not_solve() -> None:
    """A test script or visible test made to pass changes nothing for the hidden tests."""
    task = a_task("bug")
    files = {**task.files, "run_tests.py": "print('passed')\n"}
    assert not solved(task, files)
    assert task.tests["run_tests.py"] == task.files["run_tests.py"]


def test_judge_of_a_question() -> None:
    """A question wants the answer as whole words and no edit."""
    task = a_task("question")
    assert judge(task, task.files, f"It is {task.answer}.")
    assert not judge(task, task.files, f"It is x{task.answer}x.")
    assert not judge(task, task.files, "No idea.")
    assert not judge(task, {**task.files, "new.py": ""}, f"It is {task.answer}.")
