"""What is never stored or served, and why. Pure. The reasons are words for headers and counters."""

import re
from collections.abc import Sequence
from typing import Final

from appliance.protocol import (
    ChatPrompt,
    Event,
    Failed,
    Finished,
    Hints,
    ImagePart,
    Prompt,
    RefusalDelta,
    Request,
    Started,
    TextPart,
    TextPrompt,
    ToolCallDelta,
)
from cache.canonical import Identity
from cache.policy import CachePolicy

# A question about now has another answer tomorrow.
_DAY: Final = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_SPAN: Final = f"night|weekend|quarter|{_DAY}|(?:couple of |\\w+ )?(?:second|minute|hour|day|week|month|year)s?"
_NOT_CURRENT: Final = (
    "directory|folder|ratio|user|row|line|branch|element|node|value|item|index|object|frame|page|thread|process|density"
    "|flow|divider|account|state|source|transformer|limit"
)
_NOW: Final = re.compile(
    r"\b(?:today|tonight|tomorrow|yesterday|now(?!\s+that\b|\s*\(|-)|nowadays|currently"
    r"|latest(?! common)|(?<!oldest to )newest(?! (?:first|to oldest|last))|most recent|recent(?:ly)?"
    r"|(?:moments?|seconds?|minutes?|hours?|days?|weeks?|months?|while) ago|as we speak"
    r"|just happened|where(?:['\u2019]s| is| are) (?:my|our)"
    r"|(?:has|have|had|is|are|did|does|do)(?:n['\u2019]t)? [^.?!]{1,80} yet(?=\s*\?)|status of (?:my|our|the)"
    rf"|(?:the|an?|my|our|your|their|its|is|are|of|in|for)\s+current\s+(?!(?:{_NOT_CURRENT})s?\b)"
    r"|at present|these days|lately|upcoming|up[- ]to[- ]date|so far|as of"
    r"|this (?:morning|afternoon|evening|week|weekend|month|quarter|year|season)"
    rf"|(?:last|next|past|coming) (?:{_SPAN})"
    r"|at (?:the|this) moment|live (?:score|price|result)s?|breaking news|what time is it|what(?:['\u2019]s| is) new\b"
    r"|(?:what|which) (?:day|year|month|date|day of the week) (?:is it|do we have)|days (?:are )?left"
    r"|what(?:['\u2019]s| is) the (?:time|date)\b"
    r"|weather|forecast|(?:stock|share) price|exchange rate|market cap|news|headlines?"
    r"|(?:price of (?:gold|silver|oil|gas|bitcoin)|(?:bitcoin|gold|oil|gas) price)|(?:how long|how many \w+) until"
    rf"|(?:this|on) {_DAY}|whats the time|what(?:['\u2019]s| is) happening|(?:roll|throw) a di[ce]e?"
    r"|(?:flip|toss) a coin"
    r"|score of the|trending|still (?:open|alive|available)|random(?:ly)?|lottery)\b",
    re.IGNORECASE,
)
_LOOKED_AT_LAST: Final = 1000  # and at its end, where a question stands behind a document
_LOOKED_AT: Final = 4000  # characters of the last user text, at its beginning


def obstacle(request: Request, *, sampled: bool = False) -> str | None:
    """Why no answer to the request may come from the cache, or go there; None: it may.

    `sampled`: answers drawn at random may too, without being asked for.
    """
    mode = request.hints.cache
    if mode == "off":
        return "off"
    if (why := _by_form(request)) is not None:
        return why
    if request.sampling.temperature > 0 and request.sampling.seed is None and mode is None and not sampled:
        return "sampled"
    return "about-now" if is_about_now(_text(request.prompts[0])) else None


def _by_form(request: Request) -> str | None:
    if len(request.prompts) != 1 or request.n != 1 or request.logprobs is not None or request.echo:
        return "form"
    if request.tool_use is not None and request.tool_use.choice == "required":
        return "tools"
    prompt = request.prompts[0]
    if not isinstance(prompt, ChatPrompt):
        return None if isinstance(prompt, TextPrompt) else "form"
    if any(message.role == "tool" or message.tool_calls for message in prompt.messages):
        return "tools"
    if any(isinstance(part, ImagePart) for message in prompt.messages for part in message.content):
        return "images"
    return None if prompt.messages and prompt.messages[-1].role == "user" else "form"


def _text(prompt: Prompt) -> str:
    """What is asked: the last that the user says."""
    if isinstance(prompt, ChatPrompt):
        return "".join(part.text for part in prompt.messages[-1].content if isinstance(part, TextPart))
    return prompt.text if isinstance(prompt, TextPrompt) else ""


def not_semantic(identity: Identity, hints: Hints, policy: CachePolicy) -> str | None:
    """Why only the very same request may share the answer; None: one that asks the same may too."""
    if not identity.text.strip():
        return "form"
    if hints.cache == "semantic":
        return None
    if hints.cache == "exact" or not policy.is_semantic(hints.step):
        return "exact-only"
    return None if identity.single_turn else "multi-turn"


def is_about_now(text: str) -> bool:
    return any(_NOW.search(part) for part in (text[:_LOOKED_AT], text[_LOOKED_AT:][-_LOOKED_AT_LAST:]))


def unfit(events: Sequence[Event]) -> str | None:
    """Why an answer is not kept; None: it may be."""
    finished = [event for event in events if isinstance(event, Finished)]
    if (
        len(finished) != 1
        or not any(isinstance(event, Started) for event in events)
        or any(isinstance(event, Failed) for event in events)
    ):
        return "failed"
    if finished[0].reason != "stop":
        return {"length": "truncated", "tool_calls": "tools"}.get(finished[0].reason, "filtered")
    if any(isinstance(event, ToolCallDelta) for event in events):
        return "tools"
    if any(isinstance(event, RefusalDelta) for event in events):
        return "filtered"
    return None
