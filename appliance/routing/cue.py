"""What of a request says what is to be done. Pure.

Agents wrap an instruction in a system prompt and put the material beside it, pages of it sometimes. The material says
nothing of the step (a text to be classified may ask for a summary), so it is left out as far as its form betrays it.
"""

import re
from dataclasses import dataclass
from typing import Final

from appliance.protocol import ChatPrompt, Message, Request, TextPart

HEAD_CHARACTERS: Final = 280  # of a user's text: where instructions stand as a rule
TAIL_CHARACTERS: Final = 160  # and where the rest do
SYSTEM_CHARACTERS: Final = 480
SHORTEST_INSTRUCTION: Final = 24
# Of a text so much is looked at, at its beginning and at its end: it may be megabytes of material.
LOOKED_AT_FIRST: Final = 6000
LOOKED_AT_LAST: Final = 1000

_END_OF_PARAGRAPH: Final = re.compile(r"\n[ \t]{0,16}\n|:[ \t]{0,16}\n")
_FENCE: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_QUOTED: Final = re.compile('["\u201c\u00ab][^"\u201d\u00bb]{60,}?(?:["\u201d\u00bb]|\\Z)')
_TAGGED: Final = re.compile(
    r"<(document|doc|text|context|source|input|data|material|transcript|email|article|passage|content|notes?|report"
    r"|judg(?:e)?ment|letter|conversation|chat|log|record)s?\b[^>]*>.*?(?:</\1s?>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
# "## Task", "<task>", "Current Task:"; what follows is the instruction itself.
_TASK: Final = re.compile(
    r"(?:^|\n)[ \t]{0,16}(?:#{1,4}[ \t]{0,4}|\*\*|<)?"
    r"(?:(?:current |your |the )?(?:task|instructions?|goal|objective|question))\b[>*:\s]{0,8}(?P<said>[^\n<#].*)",
    re.IGNORECASE,
)
_CODE: Final = re.compile(
    r"```|^[ \t]{0,16}(?:def |class |import |from \w+ import|SELECT\b|#include|function\b|const |let |var |public |fn )"
    r"|[{};][ \t]{0,16}$|=>|\b\w{1,64}\(\)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Cue:
    system: str
    head: str
    tail: str
    has_code: bool
    has_form: bool
    turns: int  # of the assistant, so far

    @property
    def text(self) -> str:
        return "\n".join(filter(None, (self.system, self.head, self.tail)))


def cue_of(request: Request) -> Cue:
    prompt = request.prompts[0]
    messages = prompt.messages if isinstance(prompt, ChatPrompt) else ()
    said = [_text(message) for message in messages if message.role == "user"]
    turns = sum(message.role == "assistant" and bool(message.content) for message in messages)
    system = "\n".join(_text(message) for message in messages if message.role in ("system", "developer"))
    return cue_of_texts(system, said[-1] if said else "", has_form=request.constraint is not None, turns=turns)


def cue_of_texts(system: str, user: str, *, has_form: bool = False, turns: int = 0) -> Cue:
    system, user = _looked_at(system), _looked_at(user)
    head, tail = _ends(_instruction(user))
    return Cue(
        system=_without_material(system)[:SYSTEM_CHARACTERS],
        head=head,
        tail=tail,
        has_code=bool(_CODE.search(user)),
        has_form=has_form,
        turns=turns,
    )


def _looked_at(text: str) -> str:
    if len(text) <= LOOKED_AT_FIRST + LOOKED_AT_LAST:
        return text
    return f"{text[:LOOKED_AT_FIRST]}\n\n{text[-LOOKED_AT_LAST:]}"


def _instruction(text: str) -> str:
    task = _TASK.search(text)
    plain = _without_material(text)
    return f"{task['said']}\n{plain}" if task is not None else plain


def _without_material(text: str) -> str:
    for form in (_FENCE, _TAGGED, _QUOTED):
        text = form.sub(" ", text)
    return text.strip()


def _ends(text: str) -> tuple[str, str]:
    """The first paragraph, or what leads to the material, and the last one."""
    first, rest = _paragraph(text)
    if len(first) < SHORTEST_INSTRUCTION and rest:  # a greeting, a heading
        second, rest = _paragraph(rest)
        first = f"{first}\n{second}"
    last = rest.rpartition("\n\n")[2].strip()
    return first[:HEAD_CHARACTERS], last if len(last) <= TAIL_CHARACTERS else ""


def _paragraph(text: str) -> tuple[str, str]:
    """The first, and what is left."""
    end = _END_OF_PARAGRAPH.search(text)
    return (text.strip(), "") if end is None else (text[: end.end()].strip(), text[end.end() :].strip())


def _text(message: Message) -> str:
    return "".join(part.text for part in message.content if isinstance(part, TextPart))
