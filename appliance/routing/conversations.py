"""Where conversations were answered before, so that one is not sent to and fro. Bounded; in memory only."""

import hashlib
from collections import OrderedDict
from typing import Final

from appliance.protocol import ChatPrompt, Request, TextPart
from appliance.routing.decision import Place

MAX_CONVERSATIONS: Final = 10_000


class Conversations:
    def __init__(self) -> None:
        self._places: OrderedDict[bytes, Place] = OrderedDict()

    def before(self, request: Request, key: str) -> Place | None:
        """None: this is the first that is heard of it, or nobody has answered in it yet."""
        prompt = request.prompts[0]
        if not isinstance(prompt, ChatPrompt) or not any(message.role == "assistant" for message in prompt.messages):
            return None
        name = _name(request, key)
        return None if name is None else self._places.get(name)

    def answered(self, request: Request, key: str, place: Place) -> None:
        name = _name(request, key)
        if name is None:
            return
        self._places[name] = place
        self._places.move_to_end(name)
        if len(self._places) > MAX_CONVERSATIONS:
            self._places.popitem(last=False)


def _name(request: Request, key: str) -> bytes | None:
    """A conversation is known by its beginning, up to the first thing that the user said. A task of its own, which the
    agent names, is another conversation."""
    prompt = request.prompts[0]
    if not isinstance(prompt, ChatPrompt):
        return None
    digest = hashlib.sha256()
    for text in (key, request.hints.task or ""):
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    for message in prompt.messages:
        said = "".join(part.text for part in message.content if isinstance(part, TextPart))
        digest.update(f"{message.role}\0{said}\0".encode("utf-8", "surrogatepass"))
        if message.role == "user":
            break
    return digest.digest()
