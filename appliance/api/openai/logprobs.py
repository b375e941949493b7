"""Log probabilities of tokens in OpenAI's two shapes, chat's and completions'."""

import codecs
from collections.abc import Iterable
from typing import Any, Final

from appliance.protocol import TokenLogprob

FLOOR: Final = -9999.0  # OpenAI's value for "very unlikely"; JSON has no minus infinity


def chat_logprobs(tokens: Iterable[TokenLogprob]) -> dict[str, Any]:
    """Bytes are exact; the text of a token that holds a part of a character has U+FFFD in its place."""
    return {
        "content": [{**_entry(token), "top_logprobs": [_entry(top) for top in token.top]} for token in tokens],
        "refusal": None,
    }


def _entry(token: TokenLogprob) -> dict[str, Any]:
    return {
        "token": token.token.decode(errors="replace"),
        "logprob": max(token.logprob, FLOOR),
        "bytes": list(token.token),
    }


class CompletionLogprobs:
    """One choice's, as its tokens come: `text_offset` counts characters from the start of the choice's text."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._characters = 0

    def body(self, tokens: Iterable[TokenLogprob]) -> dict[str, Any]:
        texts: list[str] = []
        logprobs: list[float] = []
        tops: list[dict[str, float]] = []
        offsets: list[int] = []
        for token in tokens:
            text = _key(token.token)
            logprob = max(token.logprob, FLOOR)
            # The most likely first; the token itself is always among them, so there may be one more than asked for.
            top = {_key(other.token): max(other.logprob, FLOOR) for other in token.top}
            top.setdefault(text, logprob)
            texts.append(text)
            logprobs.append(logprob)
            tops.append(top)
            offsets.append(self._characters)
            self._characters += len(self._decoder.decode(token.token))
        return {"tokens": texts, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets}


def _key(token: bytes) -> str:
    """The token's text, or OpenAI's spelling of bytes that are none: as keys they must stay apart."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)
