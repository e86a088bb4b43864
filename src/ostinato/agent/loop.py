"""The agent's loop: ask the model, carry out what it calls for, until it replies without a call.

After mini-swe-agent: one `step` that queries and executes, plain messages, no state beside them. What differs: calls
are typed tools instead of shell lines, and every way to end has a name (`EndReason`) instead of an exception.
"""

import time

from msgspec import Struct

from ostinato.agent.chat import Chat, ChatReply, WireMessage
from ostinato.agent.tools import TOOLS, invalid_reason
from ostinato.agent.workspace import Workspace, call_tool
from ostinato.records import AgentEnded, ContextFullError, EndReason, Message, OstinatoError


class AgentConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """How the harness runs.

    system_prompt: first message, none if empty. temperature: of sampling. max_turns: generations in a run.
    max_tokens: sampled tokens in a turn. max_invalid: invalid tool calls after which the run ends.
    time_limit_s: wall-clock seconds after which no further turn begins."""

    system_prompt: str = ""
    temperature: float = 1.0
    max_turns: int = 9
    max_tokens: int = 96
    max_invalid: int = 4
    time_limit_s: float = 300.0


class AgentRun(Struct, frozen=True):
    """What came of one run. `messages` is the whole conversation; `tokens` counts generated ones; `edited` says whether
    any edit was carried out (it may have been undone by a later one); times are seconds; `error` tells of a failure."""

    reply: str
    messages: tuple[Message, ...]
    response_ids: tuple[str, ...]
    turns: int
    tool_calls: int
    invalid_calls: int
    tokens: int
    end: EndReason
    model_s: float
    tools_s: float
    edited: bool
    error: str = ""

    def ended(self, sandbox_id: str = "") -> AgentEnded:
        """The run's counts as feedback."""
        return AgentEnded(self.end, self.turns, self.tool_calls, self.invalid_calls, sandbox_id)


async def run_agent(config: AgentConfig, request: str, workspace: Workspace, chat: Chat) -> AgentRun:
    """Work on `request` in `workspace` with the model behind `chat`. Failures of either end the run by name."""
    run = _Run(config, request, workspace, chat)
    while run.end is None:
        await run.step()
    return run.result(run.end)


class _Run:
    def __init__(self, config: AgentConfig, request: str, workspace: Workspace, chat: Chat) -> None:
        self.config, self.workspace, self.chat = config, workspace, chat
        self.messages = [Message("system", config.system_prompt)] if config.system_prompt else []
        self.messages.append(Message("user", request))
        self.wire: list[WireMessage] = [{"role": m.role, "content": m.content} for m in self.messages]
        self.end: EndReason | None = None
        self.reply = self.error = ""
        self.response_ids: list[str] = []
        self.tool_calls = self.invalid_calls = self.tokens = 0
        self.model_s = self.tools_s = 0.0
        self.edited = False
        self.deadline = time.monotonic() + config.time_limit_s

    async def step(self) -> None:
        """One turn: query, then execute."""
        if len(self.response_ids) >= self.config.max_turns:
            self.end = "turn_limit"
        elif time.monotonic() > self.deadline:
            self.end = "time_limit"
        elif (answer := await self.query()) is not None:
            if answer.message.tool_calls:
                await self.execute(answer)
            else:
                self.reply = answer.message.content.strip()
                self.end = "done" if self.reply else "empty_answer"

    async def query(self) -> ChatReply | None:
        """Ask the model; None (and `end`) if it does not answer."""
        config, begin = self.config, time.monotonic()
        try:
            answer = await self.chat.query(
                self.wire, tools=TOOLS, max_tokens=config.max_tokens, temperature=config.temperature
            )
        except OstinatoError as error:
            self.end = "context_full" if isinstance(error, ContextFullError) else "model_error"
            self.error = str(error)
            return None
        finally:
            self.model_s += time.monotonic() - begin
        self.wire.append(answer.wire)
        self.messages.append(answer.message)
        self.response_ids.append(answer.response_id)
        self.tokens += answer.tokens
        return answer

    async def execute(self, answer: ChatReply) -> None:
        """Carry out the calls of one turn in order, and put their results behind them."""
        begin = time.monotonic()
        for call in answer.message.tool_calls:
            unreadable = answer.unreadable.get(call.id, "")
            self.tool_calls += 1
            self.invalid_calls += bool(unreadable or invalid_reason(call))
            try:
                text = await call_tool(self.workspace, call, unreadable)
            except OstinatoError as error:
                self.end, self.error = "sandbox_died", str(error)
                break
            self.edited |= call.name == "edit_file" and text == "ok"
            self.wire.append({"role": "tool", "tool_call_id": call.id, "content": text})
            self.messages.append(Message("tool", text, tool_call_id=call.id))
        self.tools_s += time.monotonic() - begin
        if self.end is None and self.invalid_calls >= self.config.max_invalid:
            self.end = "invalid_calls"

    def result(self, end: EndReason) -> AgentRun:
        return AgentRun(
            reply=self.reply,
            messages=tuple(self.messages),
            response_ids=tuple(self.response_ids),
            turns=len(self.response_ids),
            tool_calls=self.tool_calls,
            invalid_calls=self.invalid_calls,
            tokens=self.tokens,
            end=end,
            model_s=self.model_s,
            tools_s=self.tools_s,
            edited=self.edited,
            error=self.error,
        )
