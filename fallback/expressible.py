"""Whether a provider can be asked for all that a request asks. Pure.

What a target cannot express excludes it, with the field that does; nothing is dropped in silence.
"""

from collections.abc import Iterator

from appliance.protocol import ChatPrompt, Request
from fallback.contents import images
from fallback.provider import Provider

ANY_OBJECT = '{"type":"object"}'  # what `response_format: json_object` becomes
MAX_STOPS = {"openai": 4, "azure": 4, "anthropic": 64}
_SWITCHES = frozenset({"enable_thinking", "thinking"})  # what `reasoning_effort: none` becomes beside itself
LEAST_THOUGHTS = 1024  # tokens that Anthropic's models may be held to


def excluded_by(request: Request, provider: Provider) -> str | None:
    """The field of the request that this provider knows no word for; None: it can have the request."""
    features = provider.features
    for feature, field in _asked(request):
        if feature not in features:
            return field
    if len(request.stopping.stop) > MAX_STOPS[provider.kind]:
        return "stop"
    return _beyond_anthropic(request, provider) if provider.kind == "anthropic" else None


def _beyond_anthropic(request: Request, provider: Provider) -> str | None:
    """What Anthropic has words for, but not for this much of it."""
    if request.sampling.temperature > 1:
        return "temperature"
    if any(not stop.strip() for stop in request.stopping.stop):
        return "stop"
    budget = request.reasoning.budget
    limit = provider.max_tokens if request.stopping.max_tokens is None else request.stopping.max_tokens
    if budget and not LEAST_THOUGHTS <= budget < limit:
        return "thinking_token_budget"
    return None


def _asked(request: Request) -> Iterator[tuple[str, str]]:
    """(what it takes, the field that asks for it). What no provider has is called by a name that none has."""
    prompt = request.prompts[0]
    if not isinstance(prompt, ChatPrompt) or len(request.prompts) != 1:
        yield "text completion", "prompt"
        return
    sampling, stopping = request.sampling, request.stopping
    if sampling.logit_bias:
        yield "local token ids", "logit_bias"
    if any(images(request)):
        yield "images", "messages"
    own = prompt.template_kwargs.keys() - {"reasoning_effort"}
    if "reasoning_effort" in prompt.template_kwargs:
        yield "reasoning_effort", "reasoning_effort"
        own -= _SWITCHES
    if own:
        yield "chat_template_kwargs", "chat_template_kwargs"
    if request.constraint is not None:
        is_schema = request.constraint.kind == "json_schema"
        any_object = request.constraint.text == ANY_OBJECT
        feature = "structured_outputs" if not is_schema else "json_object" if any_object else "json_schema"
        yield feature, request.constraint.field
    if prompt.tools:
        yield "tools", "tools"
    yield from (
        (feature, feature)
        for feature, is_asked in {
            "logprobs": request.logprobs is not None,
            "n": request.n > 1,
            "seed": sampling.seed is not None,
            "top_k": sampling.top_k > 0,
            "min_p": sampling.min_p > 0,
            "repetition_penalty": sampling.repetition_penalty != 1,
            "min_tokens": stopping.min_tokens > 0,
            "ignore_eos": stopping.ignore_eos,
            "thinking_token_budget": request.reasoning.budget is not None,
        }.items()
        if is_asked
    )
    if sampling.presence_penalty:
        yield "penalties", "presence_penalty"
    if sampling.frequency_penalty:
        yield "penalties", "frequency_penalty"
