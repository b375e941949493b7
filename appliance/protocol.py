"""The canonical request and its answer, whatever wire format a client speaks.

Frozen data without behaviour. Every wire format is parsed into `Request`; every engine answers with `Event`s.
This module knows no HTTP, no engine and no other module of ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "developer", "user", "assistant", "tool"]
StepKind = Literal["plan", "extract", "classify", "summarize", "transform", "code", "chat", "synthesize"]
Criticality = Literal["critical", "normal", "sheddable"]
CacheMode = Literal["off", "exact", "semantic", "refresh"]
Privacy = Literal["any", "local-only"]
Private = Literal["secret", "email", "phone", "card"]  # what can be taken out of a request that leaves the machine
FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]  # the last only of frontier models

# INTERFACE "Errors": what a failure is called on the wire. Each has one HTTP status, in `appliance.errors`.
ErrorCode = Literal[
    "invalid_request",
    "context_length_exceeded",
    "model_not_found",
    "budget_exceeded",
    "branch_shed",
    "engine_crashed",
    "frontier_error",
    "overloaded",
    "offline",
    "model_loading",
    "deadline_exceeded",
]


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    url: str
    detail: Literal["auto", "low", "high"] = "auto"


Part = TextPart | ImagePart


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str  # JSON text, as the model wrote it


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    content: tuple[Part, ...] = ()  # null and "" are both the empty tuple
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)  # more that a chat template may read of it


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    parameters: str  # JSON Schema of an object, as text


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    messages: tuple[Message, ...]
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)  # extra variables for the chat template
    tools: tuple[Tool, ...] = ()  # that the model is told of


@dataclass(frozen=True, slots=True)
class TextPrompt:
    text: str
    add_special: bool = True  # put the model's BOS token in front, as its tokenizer would


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    tokens: tuple[int, ...]


Prompt = ChatPrompt | TextPrompt | TokenPrompt


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. Defaults draw from the model's own distribution, as OpenAI's do."""

    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0
    top_k: int = 0  # 0 is off
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, added to its logit); -100 forbids, 100 forces
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Stopping:
    max_tokens: int | None = None  # None: until the model ends or the context is full
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class Constraint:
    """The form that an answer must have, whatever the model would rather say."""

    kind: Literal["json_schema", "regex", "lark"]
    text: str  # the schema as JSON; the pattern, of the whole answer; the grammar in llguidance's variant of Lark
    field: str  # of the request: the one to name when it cannot be kept


@dataclass(frozen=True, slots=True)
class ToolUse:
    """How an answer calls the tools of its prompt."""

    choice: Literal["auto", "required"]
    only: str | None = None  # the one that may be called
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What a model that thinks before it answers may spend on it."""

    enabled: bool = True
    budget: int | None = None  # tokens; None: as many as it likes


@dataclass(frozen=True, slots=True)
class Hints:
    """What the agent says about a step; see INTERFACE "Request hints"."""

    task: str | None = None
    step: StepKind | None = None
    criticality: Criticality = "normal"
    cache: CacheMode | None = None
    privacy: Privacy = "any"
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Request:
    id: str
    model: str
    prompts: tuple[Prompt, ...]  # more than one only for /v1/completions
    n: int = 1  # choices for each prompt; choice index = prompt index * n + choice
    sampling: Sampling = field(default_factory=Sampling)
    stopping: Stopping = field(default_factory=Stopping)
    logprobs: int | None = None  # None: off; k: each token's own and the k most likely
    constraint: Constraint | None = None
    tool_use: ToolUse | None = None
    reasoning: Reasoning = field(default_factory=Reasoning)
    stream: bool = False
    include_usage: bool = False  # a last stream chunk with usage
    echo: bool = False  # /v1/completions: the prompt's text comes first
    measure_margin: bool = False  # of the answer's tokens; not the client's to ask
    hints: Hints = field(default_factory=Hints)


# What is said about one choice, in this order: Started, ReasoningDelta*, Delta*, RefusalDelta* and ToolCallDelta*, then
# Finished; or Failed at any point. Engines know text only: `appliance.answer_reader` finds reasoning and tool calls in
# it. A frontier model's `Usage` comes once, before the first Finished.


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    token_id: int
    token: bytes  # the token's own bytes; may be a part of a character
    logprob: float
    top: tuple["TokenLogprob", ...] = ()


@dataclass(frozen=True, slots=True)
class Queued:
    """The request still waits for its turn. Before everything else, any number of times."""

    ahead: int  # requests that go first
    waited_s: float
    expected_wait_s: float  # from now


@dataclass(frozen=True, slots=True)
class Started:
    choice: int
    prompt_tokens: int
    cached_tokens: int  # prompt tokens whose KV was already resident
    queue_s: float  # from arrival in the engine to the first step that worked on it
    prompt_text: str | None = None  # with `echo`
    thinking: bool = False  # the prompt ends where the model begins to think
    model: str | None = None  # a frontier model's name


@dataclass(frozen=True, slots=True)
class Delta:
    choice: int
    text: str  # whole characters; may be empty when a token ends inside one
    tokens: int
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """What the model thinks before it answers."""

    choice: int
    text: str  # empty for tokens that only end the thoughts
    tokens: int


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a call: its id and name come first, with no arguments yet."""

    choice: int
    index: int  # of the call in its choice
    id: str | None
    name: str | None
    arguments: str


@dataclass(frozen=True, slots=True)
class RefusalDelta:
    """A frontier model's words for why it does not answer."""

    choice: int
    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Of a whole request, as the provider or, where it cannot be believed, our own count has it."""

    prompt_tokens: int
    cached_tokens: int  # of them, those that the provider had ready
    completion_tokens: int
    reasoning_tokens: int  # of them
    cost_usd: float | None  # None: the price is not known


@dataclass(frozen=True, slots=True)
class Finished:
    choice: int
    reason: FinishReason
    completion_tokens: int
    mean_margin: float | None = None  # by how much its tokens led the second likeliest, in logits; where asked for


@dataclass(frozen=True, slots=True)
class Failed:
    choice: int
    code: ErrorCode
    message: str
    param: str | None = None


Event = Queued | Started | ReasoningDelta | Delta | RefusalDelta | ToolCallDelta | Usage | Finished | Failed
