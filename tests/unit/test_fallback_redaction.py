"""What is private does not leave, and comes back in the answer, whatever pieces that comes in."""

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.protocol import (
    ChatPrompt,
    Constraint,
    Delta,
    Event,
    Finished,
    ImagePart,
    Message,
    Private,
    ReasoningDelta,
    RefusalDelta,
    Request,
    Started,
    Stopping,
    TextPart,
    TextPrompt,
    TokenLogprob,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from fallback.redaction import Redaction

ALL: frozenset[Private] = frozenset(("secret", "email", "phone", "card"))
EMAIL = "ann.smith@example.com"
SECRET = "sk-proj-abcdefghij0123456789"
CARD = "4111 1111 1111 1111"
PHONE = "+1 415 555 0100"
END = Finished(0, "stop", 5)


def asked(*texts: str, **more: object) -> Request:
    return Request("r", "frontier", (ChatPrompt(tuple(Message("user", (TextPart(text),)) for text in texts)),), **more)  # type: ignore[arg-type]


def sent(redaction: Redaction, *texts: str) -> list[str]:
    (prompt,) = redaction.outward(asked(*texts)).prompts
    assert isinstance(prompt, ChatPrompt)
    return [part.text for message in prompt.messages for part in message.content if isinstance(part, TextPart)]


def returned(redaction: Redaction, *events: Event) -> list[Event]:
    return [news for event in events for news in redaction.inward(event)]


def said(events: Iterable[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


def pieces(text: str, places: Iterable[int]) -> list[str]:
    edges = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


def test_each_find_becomes_a_placeholder_and_the_same_one_for_the_same_text() -> None:
    assert sent(Redaction(ALL), f"Mail {EMAIL}, or bob@x.org. {EMAIL}!", EMAIL) == [
        "Mail [EMAIL_1], or [EMAIL_2]. [EMAIL_1]!", "[EMAIL_1]"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("email", EMAIL),
        ("email", "a+b%c@sub.mail.example.co.uk"),
        ("secret", SECRET),
        ("secret", "ghp_0123456789abcdefABCDEF0123456789abcd"),
        ("secret", "AKIAIOSFODNN7EXAMPLE"),
        ("secret", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN"),
        ("secret", "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nAAAA\n-----END RSA PRIVATE KEY-----"),
        ("card", CARD),
        ("card", "4111111111111111"),
        ("card", "3782-822463-10005"),
        ("phone", PHONE),
        ("phone", "+4915123456789"),
        ("phone", "(030) 1234 5678"),
    ],
)
def test_what_has_a_form_is_found_and_only_what_was_asked_for(kind: Private, text: str) -> None:
    (out,) = sent(Redaction(frozenset((kind,))), f"It is {text} here.")
    assert out == f"It is [{kind.upper()}_1] here."
    assert sent(Redaction(frozenset()), text) == [text]
    others = sent(Redaction(ALL - {kind, "phone"}), f"It is {text} here.")
    assert others == [f"It is {text} here."]


@pytest.mark.parametrize(
    "written", ["password: hunter22", 'api_key="hunter22"', "PASSWD = hunter22", '"secret": "hunter22"']
)
def test_of_what_is_named_a_secret_the_value_goes_and_the_name_stays(written: str) -> None:
    (out,) = sent(Redaction(ALL), written)
    assert out == written.replace("hunter22", "[SECRET_1]")


@pytest.mark.parametrize(
    "harmless",
    ["1234567890123456", "max_tokens=100000", "see section 12.3", "a @ b", "@ann said", "1024 MB", "3.14159265358979",
     "the password is long", "[EMAIL]"],
)  # fmt: skip
def test_what_only_looks_like_it_stays(harmless: str) -> None:
    assert sent(Redaction(ALL - {"phone"}), harmless) == [harmless]


@pytest.mark.parametrize(
    "harmless", ["2024-08-06", "due 2024-08-06.", "from 2024-08-06 to 2024-09-01", "192.168.100.200"]
)
def test_a_date_or_an_address_of_a_machine_is_no_telephone(harmless: str) -> None:
    assert sent(Redaction(ALL), harmless) == [harmless]


@pytest.mark.parametrize(
    "written",
    [f"{CARD} 12/27", f"{CARD} 123", "4111111111111111 123", f"{CARD} {CARD}", f"7 {CARD}", "2 x 4111111111111111"],
)
def test_a_card_is_found_beside_other_numbers(written: str) -> None:
    (out,) = sent(Redaction(frozenset(("card",))), written)
    assert "[CARD_1]" in out
    assert "1111" not in out


def test_all_roles_and_the_arguments_of_calls_are_looked_at_and_images_are_left() -> None:
    image = ImagePart("https://x.example/a.png")
    messages = (
        Message("system", (TextPart(EMAIL),)),
        Message("user", (TextPart("?"), image)),
        Message("assistant", (), tool_calls=(ToolCall("c", "mail", json.dumps({"to": EMAIL})),)),
        Message("tool", (TextPart(f"Sent to {EMAIL}."),), tool_call_id="c"),
    )
    (prompt,) = Redaction(ALL).outward(Request("r", "m", (ChatPrompt(messages),))).prompts
    assert isinstance(prompt, ChatPrompt)
    assert EMAIL not in repr(prompt)
    assert prompt.messages[1].content[1] == image
    assert json.loads(prompt.messages[2].tool_calls[0].arguments) == {"to": "[EMAIL_1]"}
    assert (prompt.messages[3].tool_call_id, prompt.messages[2].tool_calls[0].id) == ("c", "c")


def test_a_request_without_finds_is_what_it_was_and_so_is_its_answer() -> None:
    redaction, request = Redaction(ALL), asked("Nothing here.")
    assert redaction.outward(request) == request
    events: list[Event] = [Started(0, 0, 0, 0.0), Delta(0, "[EMAIL_1] [", 0), END]
    assert returned(redaction, *events) == events
    text = Request("r", "m", (TextPrompt(EMAIL),))
    assert redaction.outward(text) == text  # no such prompt leaves


def test_what_was_taken_out_comes_back_in_text_thoughts_refusals_and_arguments() -> None:
    redaction = Redaction(ALL)
    sent(redaction, EMAIL)
    assert returned(
        redaction,
        ReasoningDelta(0, "<[EMAIL_1]>", 0),
        Delta(0, "[EMAIL_1], [EMAIL_2]", 0),
        RefusalDelta(0, "not [EMAIL_1]"),
        ToolCallDelta(0, 0, "c", "mail", ""),
        ToolCallDelta(0, 0, None, None, '{"to": "[EMAIL_1]"}'),
        END,
    ) == [
        ReasoningDelta(0, f"<{EMAIL}>", 0),
        Delta(0, f"{EMAIL}, [EMAIL_2]", 0),
        RefusalDelta(0, f"not {EMAIL}"),
        ToolCallDelta(0, 0, "c", "mail", ""),
        ToolCallDelta(0, 0, None, None, json.dumps({"to": EMAIL})),
        END,
    ]


def test_half_a_placeholder_waits_and_the_text_before_it_does_not() -> None:
    redaction = Redaction(ALL)
    sent(redaction, EMAIL)
    assert said(redaction.inward(Delta(0, "Write to [EM", 0))) == "Write to "
    assert redaction.inward(Delta(0, "AIL", 0)) == []
    assert said(redaction.inward(Delta(0, "_1] now", 0))) == f"{EMAIL} now"


def test_brackets_that_are_none_of_ours_do_not_wait() -> None:
    redaction = Redaction(ALL)
    sent(redaction, EMAIL)
    assert said(redaction.inward(Delta(0, "a[0] [1", 0))) == "a[0] [1"


def test_the_first_of_ten_is_not_the_tenth() -> None:
    redaction, mails = Redaction(ALL), [f"a{i}@example.com" for i in range(12)]
    assert sent(redaction, " ".join(mails))[0].split() == [f"[EMAIL_{i + 1}]" for i in range(12)]
    events = returned(
        redaction, *(Delta(0, piece, 0) for piece in ("[EMAIL_1", "] [EMAIL_1", "2] [EMAIL_1", "0]")), END
    )
    assert said(events) == f"{mails[0]} {mails[11]} {mails[9]}"


def test_choices_and_calls_wait_each_for_themselves() -> None:
    redaction = Redaction(ALL)
    sent(redaction, EMAIL)
    events = returned(
        redaction,
        Delta(0, "[EMAIL", 0),
        Delta(1, "_1]", 0),
        Delta(0, "_1]", 0),
        ToolCallDelta(0, 0, "a", "f", "[EMA"),
        ToolCallDelta(0, 1, "b", "f", "[EMA"),
        ToolCallDelta(0, 0, None, None, "IL_1]"),
        ToolCallDelta(0, 1, None, None, "IL_9]"),
        END,
    )
    assert said(e for e in events if isinstance(e, Delta) and e.choice == 0) == EMAIL
    assert said(e for e in events if isinstance(e, Delta) and e.choice == 1) == "_1]"
    arguments = {
        i: "".join(e.arguments for e in events if isinstance(e, ToolCallDelta) and e.index == i) for i in (0, 1)
    }
    assert arguments == {0: EMAIL, 1: "[EMAIL_9]"}
    assert [e.id for e in events if isinstance(e, ToolCallDelta) and e.id] == ["a", "b"]


@pytest.mark.parametrize("held", [Delta(0, "a [EM", 0), ReasoningDelta(0, "a [EM", 0), RefusalDelta(0, "a [EM")])
def test_what_waits_when_the_answer_ends_is_not_lost(held: Delta | ReasoningDelta | RefusalDelta) -> None:
    redaction = Redaction(ALL)
    sent(redaction, EMAIL)
    events = returned(redaction, held, Usage(1, 0, 1, 0, None), END)
    assert "".join(event.text for event in events if isinstance(event, type(held))) == "a [EM"
    assert events[-1] == END


@pytest.mark.parametrize(
    ("held", "next_"),
    [
        (ReasoningDelta(0, "See [", 0), Delta(0, "Yes.", 0)),
        (Delta(0, "See [", 0), ToolCallDelta(0, 0, "c", "look", "")),
        (Delta(0, "See [", 0), RefusalDelta(0, "No.")),
    ],
)
def test_what_waits_comes_before_what_follows_it(held: Event, next_: Event) -> None:
    redaction = Redaction(ALL)
    sent(redaction, EMAIL)
    kinds = [type(event) for event in returned(redaction, held, next_, END)]
    assert kinds.index(type(next_)) == max(i for i, kind in enumerate(kinds) if kind is type(held)) + 1


def test_log_probabilities_of_a_piece_that_waits_are_not_lost() -> None:
    redaction = Redaction(ALL)
    sent(redaction, EMAIL)
    tokens = [TokenLogprob(-1, piece.encode(), -0.1) for piece in ("[EM", "AIL_1", "]")]
    events = returned(redaction, *(Delta(0, token.token.decode(), 0, (token,)) for token in tokens), END)
    assert [token for event in events if isinstance(event, Delta) for token in event.logprobs] == tokens


def call_back(redaction: Redaction, arguments: str) -> str:
    events = returned(redaction, ToolCallDelta(0, 0, "c", "f", ""), ToolCallDelta(0, 0, None, None, arguments), END)
    return "".join(event.arguments for event in events if isinstance(event, ToolCallDelta))


@pytest.mark.parametrize(
    "value",
    [
        "hunter22",
        "pa\\ss\\word",
        "pässwörd",
        'password1"x',
        "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----",
    ],
)
def test_the_arguments_of_a_call_stay_json_and_come_back_as_they_were(value: str) -> None:
    redaction, arguments = Redaction(ALL), json.dumps({"password": value, "n": 1})
    call = Message("assistant", (), tool_calls=(ToolCall("c", "f", arguments),))
    (prompt,) = redaction.outward(Request("r", "m", (ChatPrompt((call,)),))).prompts
    assert isinstance(prompt, ChatPrompt)
    out = prompt.messages[0].tool_calls[0].arguments
    json.loads(out)
    assert value not in out
    assert json.loads(call_back(redaction, out)) == json.loads(arguments)


def test_a_secret_of_several_lines_from_a_text_can_stand_in_arguments() -> None:
    redaction, secret = Redaction(ALL), "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----"
    sent(redaction, secret)
    assert json.loads(call_back(redaction, '{"key": "[SECRET_1]"}')) == {"key": secret}


def test_an_answer_that_must_be_json_stays_json() -> None:
    redaction, secret = Redaction(ALL), "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----"
    form = Constraint("json_schema", '{"type":"object"}', "response_format")
    redaction.outward(asked(f"The key: {secret}", constraint=form))
    assert json.loads(said(returned(redaction, Delta(0, '{"key": "[SECRET_1]"}', 0), END))) == {"key": secret}


def test_a_placeholder_that_the_user_wrote_means_no_one_s_address() -> None:
    redaction = Redaction(ALL)
    text = f"What does [EMAIL_1] in a template mean? Answer {EMAIL}."
    (out,) = sent(redaction, text)
    assert said(returned(redaction, Delta(0, out, 0), END)) == text


def test_a_secret_that_holds_another_s_placeholder_comes_back_as_it_was() -> None:
    redaction, text = Redaction(ALL), f"password: a[EMAIL_2]b then {EMAIL}"
    (out,) = sent(redaction, text)
    assert said(returned(redaction, Delta(0, out, 0), END)) == text


words = st.sampled_from(
    (EMAIL, "bob@x.org", SECRET, CARD, PHONE, "password=hunter22", "[", "[E", "]", "hello", "_1", "ü", "\n")
)


@given(
    texts=st.lists(st.lists(words, max_size=8).map(", ".join), min_size=1, max_size=3),
    places=st.lists(st.integers(0, 120)),
)
def test_text_that_is_repeated_in_any_pieces_comes_back_as_it_was(texts: Sequence[str], places: list[int]) -> None:
    redaction = Redaction(ALL)
    out = sent(redaction, *texts)
    for private in (EMAIL, "bob@x.org", SECRET, CARD, PHONE, "hunter22"):
        assert not any(private in text for text in out)
    for text, redacted in zip(texts, out, strict=True):
        answer = returned(
            redaction, Started(0, 0, 0, 0.0), *(Delta(0, piece, 1) for piece in pieces(redacted, places)), END
        )
        assert said(answer) == text
        assert isinstance(answer[0], Started)
        assert answer[-1] == END


@given(
    values=st.lists(st.sampled_from((EMAIL, SECRET, CARD, "plain")), max_size=5), places=st.lists(st.integers(0, 200)),
    spare=st.text("[]EMAIL_123 ", max_size=10),
)  # fmt: skip
def test_arguments_in_any_pieces_come_back_as_json(values: list[str], places: list[int], spare: str) -> None:
    redaction = Redaction(ALL)
    if any(f"[{kind}_" in spare for kind in ("EMAIL", "SECRET", "CARD")):
        return  # a placeholder of the user's own has its test
    (out,) = sent(redaction, json.dumps({"values": values, "spare": spare}))
    events: list[Event] = [ToolCallDelta(0, 0, "c", "f", "")]
    events += [ToolCallDelta(0, 0, None, None, piece) for piece in pieces(out, places)]
    back = "".join(e.arguments for e in returned(redaction, *events, END) if isinstance(e, ToolCallDelta))
    assert json.loads(back) == {"values": values, "spare": spare}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("phone", "+49 170 1234567"),
        ("phone", "+49-170-1234567"),
        ("phone", "+49 (0)170 1234567"),
        ("phone", "+49 170/1234567"),
        ("phone", "+33 6 12 34 56 78"),
        ("phone", "0170 1234567"),
        ("email", "m\u00fcller@ex\u00e4mple.de"),
        ("secret", "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"),
    ],
)
def test_forms_of_other_countries_and_clouds_are_found_whole(kind: Private, text: str) -> None:
    written = f"aws_secret_access_key = {text}" if kind == "secret" else f"Reach me at {text}, please."
    (out,) = sent(Redaction(frozenset({kind})), written)
    assert out == written.replace(text, f"[{kind.upper()}_1]")


@pytest.mark.parametrize("written", ["postgres://bob:{}@db.internal/x", "Authorization: Bearer {}"])
def test_of_a_login_only_the_secret_is_taken_out(written: str) -> None:
    secret = "Zx81-qqqq-wwww-eeee-rrrr"
    (out,) = sent(Redaction(frozenset({"secret"})), written.format(secret))
    assert out == written.format("[SECRET_1]")


def test_stop_strings_are_looked_at_too() -> None:
    request = replace(asked(f"Mail {EMAIL}"), stopping=Stopping(stop=(EMAIL, "END")))
    assert Redaction(ALL).outward(request).stopping.stop == ("[EMAIL_1]", "END")
