"""Where a request is answered, and why. Pure: a function of the request, the policy and what is known at the moment.

What the agent says beats what is guessed; what must not leave the machine beats both.
"""

from dataclasses import dataclass, replace
from typing import Literal

from appliance.errors import InvalidRequest, Offline
from appliance.frontier_settings import RoutingSettings, Treatment
from appliance.protocol import ChatPrompt, Request, StepKind
from fallback.contents import images

Place = Literal["local", "frontier"]


@dataclass(frozen=True, slots=True)
class Guess:
    """What kind of step a request seems to be; None: it could be several."""

    step: StepKind | None
    confidence: float  # 0 to 1


@dataclass(frozen=True, slots=True)
class Situation:
    """What the decision needs beside the request."""

    local_models: frozenset[str]
    has_frontier: bool  # a provider is configured
    offline: bool
    excluded_field: str | None  # of the request: what no provider can express
    too_long: bool  # the prompt cannot fit the local model's context
    before: Place | None  # where this conversation was answered last
    guess: Guess


@dataclass(frozen=True, slots=True)
class Decision:
    place: Place
    reason: str  # kebab-case
    step: StepKind | None = None
    confidence: float = 0.0  # that it is that step
    may_escalate: bool = False  # a local answer that fails its checks is made again by the frontier
    degraded: bool = False  # the frontier was asked for, and cannot be had
    explicit: bool = False  # the client named the place
    may_overflow: bool = False  # it is for the local engine, and the frontier may have it when there is no room here

    @property
    def route(self) -> str:
        """As `appliance route` words it."""
        return "local-then-escalate" if self.may_escalate else self.place


@dataclass(frozen=True, slots=True)
class _Wish:
    treatment: Treatment
    reason: str
    step: StepKind | None = None
    confidence: float = 0.0
    explicit: bool = False


def decide(request: Request, policy: RoutingSettings, situation: Situation) -> Decision:
    """Raises `InvalidRequest` for what the frontier was asked for by name and cannot express, and `Offline`."""
    wish = _wish(request, policy, situation)
    local = Decision("local", wish.reason, wish.step, wish.confidence, explicit=wish.explicit)
    if wish.treatment == "local" and wish.explicit:
        return local
    obstacle = _obstacle(request, policy, situation, wish)
    may_overflow = obstacle is None and policy.saturated == "frontier" and request.hints.criticality == "normal"
    if wish.treatment == "local":
        return replace(local, may_overflow=may_overflow)
    if obstacle is None:
        place: Place = "frontier" if wish.treatment == "frontier" else "local"
        return Decision(
            place,
            wish.reason,
            wish.step,
            wish.confidence,
            may_escalate=place == "local",
            explicit=wish.explicit,
            may_overflow=place == "local" and may_overflow,
        )
    if wish.treatment == "local-then-escalate":
        return local
    return Decision("local", obstacle, wish.step, wish.confidence, degraded=True, explicit=wish.explicit)


def _wish(request: Request, policy: RoutingSettings, situation: Situation) -> _Wish:
    """What is right for the request, were everything to be had."""
    said, guess = request.hints.step, situation.guess
    certain = guess.step if said is None and guess.confidence >= policy.min_confidence else None
    step, confidence = said or certain, 1.0 if said is not None else guess.confidence
    treatment, reason = policy.treatment(step), f"looks-like-{step}" if certain is not None else "unsure"
    is_named = request.model in situation.local_models
    if is_named or request.model in ("local", "frontier"):
        place: Treatment = "frontier" if request.model == "frontier" and not is_named else "local"
        return _Wish(place, "model-name" if is_named else f"{request.model}-alias", step, confidence, explicit=True)
    began = situation.before if in_tool_loop(request) else None
    if began == "frontier":  # whoever made the calls reads their results
        treatment, reason = "frontier", "tool-loop"
    elif said is not None:
        reason = f"step-{said}"
    elif began is not None:
        treatment, reason = began, "tool-loop"
    elif situation.before == "frontier":
        treatment, reason = "frontier", "conversation"
    elif (sees := any(images(request))) or situation.too_long:
        treatment, reason = "frontier", "images" if sees else "too-long"
    return _Wish(treatment, reason, step, confidence)


def _obstacle(request: Request, policy: RoutingSettings, situation: Situation, wish: _Wish) -> str | None:
    """Why the frontier cannot have it; None: it can."""
    by_name = wish.explicit and wish.treatment == "frontier"
    if request.hints.privacy == "local-only" or policy.privacy == "local-only":
        return "local-only"
    if not situation.has_frontier:
        if by_name:
            raise Offline("This appliance has no frontier provider: use model 'auto' or 'local'.", param="model")
        return "no-frontier"
    if situation.offline:
        if by_name or (wish.treatment == "frontier" and policy.offline == "refuse"):
            raise Offline("The appliance is offline, and this step is for the frontier: use model 'local', or wait.")
        return "offline"
    if situation.excluded_field is not None:
        if by_name:
            field = situation.excluded_field
            raise InvalidRequest(f"'{field}' cannot be expressed to any frontier provider here.", param=field)
        return "inexpressible"
    return None


def in_tool_loop(request: Request) -> bool:
    """Whether the request brings the results of calls that its own model made."""
    prompt = request.prompts[0]
    return isinstance(prompt, ChatPrompt) and bool(prompt.messages) and prompt.messages[-1].role == "tool"
