"""A conversation is known again by its beginning, to its own key only, and the oldest are forgotten first."""

from dataclasses import replace

import pytest

from appliance.protocol import ChatPrompt, Hints, Message, Request, TextPart, TextPrompt
from appliance.routing import conversations
from appliance.routing.conversations import Conversations

KEY = "key_1"


def said(role: str, text: str) -> Message:
    return Message(role, (TextPart(text),))  # type: ignore[arg-type]


def turn(*texts: str, system: str = "Be brief.", task: str | None = None) -> Request:
    """User and assistant by turns."""
    messages = [said(("user", "assistant")[i % 2], text) for i, text in enumerate(texts)]
    return Request("r", "auto", (ChatPrompt((said("system", system), *messages)),), hints=Hints(task=task))


def test_nothing_is_known_of_a_conversation_before_it_was_answered() -> None:
    known = Conversations()
    assert known.before(turn("Hi.", "Hello.", "And?"), KEY) is None


def test_the_next_turn_finds_where_the_first_was_answered() -> None:
    known = Conversations()
    known.answered(turn("Hi."), KEY, "frontier")
    assert known.before(turn("Hi.", "Hello.", "And?"), KEY) == "frontier"
    assert known.before(turn("Hi.", "Another answer.", "And?", "So.", "Well?"), KEY) == "frontier"


def test_a_first_turn_has_nothing_before_it_though_another_began_alike() -> None:
    known = Conversations()
    known.answered(turn("Hi."), KEY, "frontier")
    assert known.before(turn("Hi."), KEY) is None


def test_the_last_answer_counts() -> None:
    known = Conversations()
    known.answered(turn("Hi."), KEY, "local")
    known.answered(turn("Hi.", "Hello.", "And?"), KEY, "frontier")
    assert known.before(turn("Hi.", "Hello.", "And?", "So.", "Well?"), KEY) == "frontier"


def test_other_beginnings_keys_and_tasks_are_other_conversations() -> None:
    known = Conversations()
    known.answered(turn("Hi.", task="t"), KEY, "frontier")
    again = turn("Hi.", "Hello.", "And?", task="t")
    assert known.before(again, KEY) == "frontier"
    assert known.before(again, "key_2") is None
    assert known.before(turn("Hi.", "Hello.", "And?", task="u"), KEY) is None
    assert known.before(turn("Hi.", "Hello.", "And?"), KEY) is None
    assert known.before(turn("Ho.", "Hello.", "And?", task="t"), KEY) is None
    assert known.before(turn("Hi.", "Hello.", "And?", system="Be long.", task="t"), KEY) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((KEY, turn("Hi.", system="")), (KEY, turn("Hi."))),
        ((KEY, turn("b", system="a")), (KEY, turn("", system="ab"))),
        (("a", turn("x", task="b")), ("ab", turn("x"))),
    ],
)
def test_the_borders_between_parts_count(one: tuple[str, Request], other: tuple[str, Request]) -> None:
    known = Conversations()
    known.answered(one[1], one[0], "frontier")
    prompt = other[1].prompts[0]
    assert isinstance(prompt, ChatPrompt)
    later = replace(other[1], prompts=(ChatPrompt((*prompt.messages, said("assistant", "x"))),))
    assert known.before(later, other[0]) is None


def test_half_a_surrogate_pair_is_a_text_like_any() -> None:
    known = Conversations()
    known.answered(turn("\ud83d"), KEY, "local")
    assert known.before(turn("\ud83d", "x"), KEY) == "local"


def test_text_completions_are_no_conversations() -> None:
    known, request = Conversations(), Request("r", "auto", (TextPrompt("x"),))
    known.answered(request, KEY, "frontier")
    assert known.before(request, KEY) is None


def test_a_prompt_without_a_user_or_without_messages_does_no_harm() -> None:
    known = Conversations()
    for messages in ((), (said("assistant", "I"),), (said("system", "x"), said("assistant", "I"))):
        request = Request("r", "auto", (ChatPrompt(messages),))
        known.answered(request, KEY, "local")
        assert known.before(request, KEY) in (None, "local")


def test_the_oldest_are_forgotten_first_and_what_goes_on_is_not_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "MAX_CONVERSATIONS", 3)
    known = Conversations()
    for text in ("a", "b", "c"):
        known.answered(turn(text), KEY, "local")
    known.answered(turn("a", "x", "y"), KEY, "local")
    known.answered(turn("d"), KEY, "local")
    assert [known.before(turn(text, "x", "y"), KEY) for text in "abcd"] == ["local", None, "local", "local"]
