"""What a rendering gives: a prompt in segments, or one of these errors.

TemplateError             this request cannot be put into this template; `param` names the message when known
├── TemplateTimeout       the template ran past its time
└── RendererDied          the template took the renderer process with it, or used up its memory
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the prompt. Concatenated, the segments are the text that the template wrote.

    Control tokens may be read only where `parse_special` is true. Text that a client sent is false exactly where it
    spells a control token, alone or together with its neighbours; all else is in long true segments, so that an
    ordinary prompt is one segment and its tokens are the ones that other servers make.

    For whoever tokenizes: add no BOS token of your own when the template wrote one. Tokenizers of the SentencePiece
    kind put a blank before each text they are given, so with those a false segment, and the one after it, start with
    a blank that the client did not send, unless they are tokenized behind a known prefix that is then cut off.
    llama.cpp reads tokens of the "user defined" kind (`<think>` in some vocabularies) even in false segments.
    """

    text: str
    parse_special: bool


@dataclass(frozen=True, slots=True)
class Rendered:
    segments: tuple[Segment, ...]
    form: str  # how the messages were put to the template: "as-given", or the changes made, joined by "+"

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)


class TemplateError(Exception):
    """`message` is for the client: what is wrong and what to do. `param` names a part of the request or is None."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class TemplateTimeout(TemplateError):
    pass


class RendererDied(TemplateError):
    pass
