"""What has no place in the cache: answers that are not whole or not the same twice, and questions about now."""

import re
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.protocol import (
    CacheMode,
    ChatPrompt,
    Constraint,
    Delta,
    Event,
    Failed,
    Finished,
    FinishReason,
    Hints,
    ImagePart,
    Message,
    Prompt,
    ReasoningDelta,
    RefusalDelta,
    Request,
    Sampling,
    Started,
    TextPart,
    TextPrompt,
    TokenPrompt,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolUse,
    Usage,
)
from cache.eligibility import is_about_now, obstacle, unfit

GREEDY = Sampling(temperature=0.0)
LOOK = Tool("look", "", "{}")


def said(text: str, role: Any = "user") -> Message:
    return Message(role, (TextPart(text),))


HI = said("Hi.")


def asked(*messages: Message, **more: Any) -> Request:
    return prompted(ChatPrompt(messages or (HI,)), **more)


def prompted(*prompts: Prompt, **more: Any) -> Request:
    return Request("r", "auto", prompts, **{"sampling": GREEDY, **more})


# Requests


@pytest.mark.parametrize(
    "request_",
    [
        asked(),
        asked(said("Be brief.", "system"), HI),
        asked(HI, said("Hi.", "assistant"), said("And you?")),
        asked(Message("user", (TextPart("Hi"), TextPart(".")))),
        asked(Message("user")),
        asked(said("Hi.", "developer"), HI),
        prompted(TextPrompt("Once upon a time")),
        prompted(TextPrompt("")),
        asked(stream=True, include_usage=True),
        asked(constraint=Constraint("regex", "[a-z]+", "response_format")),
        prompted(ChatPrompt((HI,), {}, (LOOK,)), tool_use=ToolUse("auto")),
        prompted(ChatPrompt((HI,), {}, (LOOK,))),
    ],
)
def test_an_ordinary_request_may_be_cached(request_: Request) -> None:
    assert obstacle(request_) is None


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (asked(n=2), "form"),
        (asked(logprobs=0), "form"),
        (asked(logprobs=5), "form"),
        (prompted(), "form"),
        (prompted(TextPrompt("a"), echo=True), "form"),
        (prompted(TextPrompt("a"), TextPrompt("b")), "form"),
        (prompted(ChatPrompt((HI,)), ChatPrompt((HI,))), "form"),
        (prompted(TokenPrompt((1, 2))), "form"),
        (prompted(TokenPrompt(())), "form"),
        (prompted(ChatPrompt(())), "form"),
        (asked(HI, said("Hello", "assistant")), "form"),
        (asked(said("Be brief.", "system")), "form"),
        (prompted(ChatPrompt((HI,), {}, (LOOK,)), tool_use=ToolUse("required")), "tools"),
        (prompted(ChatPrompt((HI,), {}, (LOOK,)), tool_use=ToolUse("required", "look")), "tools"),
        (
            asked(
                HI, Message("assistant", (), None, (ToolCall("c", "look", "{}"),)), Message("tool", (), None, (), "c")
            ),
            "tools",
        ),
        (asked(HI, Message("tool", (TextPart("5"),), None, (), "c"), said("And?")), "tools"),
        (asked(HI, Message("assistant", (), None, (ToolCall("c", "look", "{}"),)), said("And?")), "tools"),
        (asked(Message("user", (TextPart("What is it?"), ImagePart("https://x.example/a.png")))), "images"),
        (asked(Message("user", (ImagePart("https://x.example/a.png"),))), "images"),
        (
            asked(Message("user", (ImagePart("https://x.example/a.png"),)), said("A cat.", "assistant"), said("Sure?")),
            "images",
        ),
    ],
)
def test_a_request_of_another_form_may_not(request_: Request, why: str) -> None:
    for mode in (None, "exact", "semantic", "refresh"):
        assert obstacle(replace(request_, hints=Hints(cache=mode))) == why
        assert obstacle(replace(request_, hints=Hints(cache=mode)), sampled=True) == why


@pytest.mark.parametrize("temperature", [0.01, 0.7, 1.0, 2.0])
def test_answers_drawn_at_random_are_cached_for_those_who_ask(temperature: float) -> None:
    drawn = asked(sampling=Sampling(temperature))
    assert obstacle(drawn) == "sampled"
    assert obstacle(drawn, sampled=True) is None
    for mode in ("exact", "semantic", "refresh"):
        assert obstacle(replace(drawn, hints=Hints(cache=mode))) is None


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63 - 1])
def test_with_a_seed_they_are_the_same_twice(seed: int) -> None:
    assert obstacle(asked(sampling=Sampling(1.0, seed=seed))) is None


def test_a_request_that_says_nothing_of_sampling_is_drawn_at_random() -> None:
    assert obstacle(Request("r", "auto", (ChatPrompt((HI,)),))) == "sampled"


def test_who_switches_it_off_is_obeyed_before_anything_else_is_found() -> None:
    off = Hints(cache="off")
    for request in (asked(hints=off), asked(said("What is new today?"), hints=off), asked(n=2, hints=off)):
        assert obstacle(request) == "off"
        assert obstacle(request, sampled=True) == "off"


@pytest.mark.parametrize("mode", [mode for mode in get_args(CacheMode) if mode != "off"])
def test_a_question_about_now_is_not_cached_though_it_be_asked_for(mode: CacheMode) -> None:
    request = asked(said("What is the weather like today?"), hints=Hints(cache=mode))
    assert obstacle(request) == "about-now"
    assert obstacle(request, sampled=True) == "about-now"


def test_what_counts_is_the_last_that_the_user_says() -> None:
    now = "What is the weather like today?"
    assert obstacle(asked(said(now), said("Sunny.", "assistant"), said("Define a cloud."))) is None
    assert obstacle(asked(said(f"{now} Today is Monday.", "system"), said("Define a cloud."))) is None
    assert obstacle(asked(said("Define a cloud."), said("It is vapour.", "assistant"), said(now))) == "about-now"
    assert obstacle(asked(Message("user", (TextPart("What is the wea"), TextPart("ther like?"))))) == "about-now"
    assert obstacle(prompted(TextPrompt(now))) == "about-now"


requests = st.builds(
    lambda prompts, n, sampling, logprobs, use, mode, echo: Request(
        "r", "auto", tuple(prompts), n, sampling, logprobs=logprobs, tool_use=use, echo=echo, hints=Hints(cache=mode)
    ),
    st.lists(
        st.one_of(
            st.builds(TextPrompt, st.text(max_size=20)),
            st.builds(TokenPrompt, st.tuples(st.integers(0, 9))),
            st.lists(
                st.builds(
                    Message,
                    st.sampled_from(("system", "developer", "user", "assistant", "tool")),
                    st.lists(st.builds(TextPart, st.text(max_size=20)) | st.builds(ImagePart, st.just("u"))).map(tuple),
                    st.none(),
                    st.sampled_from(((), (ToolCall("c", "look", "{}"),))),
                ),
                max_size=3,
            ).map(lambda messages: ChatPrompt(tuple(messages))),
        ),
        max_size=2,
    ),
    st.integers(1, 2),
    st.builds(Sampling, st.sampled_from((0.0, 1.0)), seed=st.sampled_from((None, 1))),
    st.sampled_from((None, 0)),
    st.sampled_from((None, ToolUse("auto"), ToolUse("required"))),
    st.sampled_from((None, *get_args(CacheMode))),
    st.booleans(),
)


@given(request_=requests, sampled=st.booleans())
def test_whatever_is_asked_there_is_one_word_for_why_not(request_: Request, *, sampled: bool) -> None:
    why = obstacle(request_, sampled=sampled)
    assert why in (None, "off", "form", "tools", "images", "sampled", "about-now")
    assert why is None or re.fullmatch("[a-z-]+", why)
    if why is None:
        (prompt,) = request_.prompts
        assert not isinstance(prompt, TokenPrompt)
        assert request_.n == 1
        assert request_.logprobs is None


# Now

ABOUT_NOW = """
Has anybody looked at my message from ten minutes ago?
Did the tests pass on the last commit an hour ago?
Where is my parcel as we speak?
Where's my order?
What is the status of my refund?
Has the build finished yet?
What's the weather in Lisbon?
Will it rain in Oslo tomorrow?
What is the current Bitcoin price?
What is Apple's stock price right now?
Who is the current president of France?
Who is currently the CEO of Intel?
What time is it in Tokyo?
What's the time?
What\u2019s the date?
What day of the week is it?
What year is it?
What is today's date?
WHAT IS THE DATE TODAY
Give me the latest news about the election.
Any breaking news this morning?
What happened yesterday in parliament?
Which version of Python is the newest?
What is the most recent release of Kubernetes?
What is the exchange rate of the euro to the dollar?
Who won last night's game?
Who won the match last Sunday?
What's the score of the Lakers game?
Which movies are in the cinemas this weekend?
What are the trending topics on Twitter?
Is the Queen of Denmark still alive?
How has the S&P 500 done in the last 30 days?
What changed in the last few days?
What has happened so far this year?
What is the state of the art as of now?
Summarize recent developments in AI.
What are the headlines?
How much is an ounce of gold at the moment?
What is the current inflation rate in Germany?
What is the current UK prime minister's name?
Is GitHub down right now?
Are there any traffic jams on the A7 at present?
What are the upcoming concerts in Berlin?
How many days are left until Christmas?
What meetings do I have next week?
Which phones are popular these days?
How many people live in India today?
What's new in politics?
Show me live results of the race.
Pick a random number between 1 and 10.
How old is Madonna now?
Is the shop on Main Street open now?
""".strip().splitlines()

LOOKS_LIKE_IT = """
How do I sort files from oldest to newest?
List the rows newest first.
What does "yet" mean?
Where are the tonsils?
How does the now() function work in SQL?
What does datetime.now() return?
Now that I have a list, how do I sort it in Python?
How do you measure electric current with a multimeter?
What is the current ratio in accounting?
How does alternating current differ from direct current?
What is eddy current braking?
What does the current directory mean in a shell?
How do I get the current date in JavaScript?
What is the latest common ancestor of two nodes?
How does git rebase work on the latest commit?
What does docker pull nginx:latest do?
How do I find the newest file in a directory with bash?
Explain the 'most recently used' cache policy.
What is a least recently used cache?
What is the time complexity of quicksort?
What is the time signature of a waltz?
What is the date of the Battle of Hastings?
What is a random variable?
Explain how a random forest works.
How does random access memory work?
What is a lottery scheduling algorithm?
What is the news value theory in journalism?
Translate 'newspaper' into French.
How do I center a headline in CSS?
Explain the difference between weather and climate.
How does exponential smoothing forecast a time series?
What does the FORECAST function in Excel do?
What is an exchange rate?
How is market cap calculated?
What is a stock split?
What is the theme of the song Yesterday by the Beatles?
Who wrote the play Long Day's Journey into Night?
What is the score of a perfect game in bowling?
How does the present perfect differ from the past simple?
What does up-to-date mean?
What does 'as of' mean in a contract?
How do I write a cron job that runs every day of this month?
What does a live variable mean in compiler theory?
What is knowledge distillation?
What is a snow line?
How does nowcasting differ from other methods?
Is the know-how of a firm an asset?
""".strip().splitlines()


REFUSED_WITHOUT_NEED = """
How do I get the current date in JavaScript?
How does git rebase work on the latest commit?
What does docker pull nginx:latest do?
How do I find the newest file in a directory with bash?
Explain the 'most recently used' cache policy.
What is a least recently used cache?
What is the time complexity of quicksort?
What is the time signature of a waltz?
What is the date of the Battle of Hastings?
What is a random variable?
Explain how a random forest works.
How does random access memory work?
What is a lottery scheduling algorithm?
What is the news value theory in journalism?
How do I center a headline in CSS?
Explain the difference between weather and climate.
How does exponential smoothing forecast a time series?
What does the FORECAST function in Excel do?
What is an exchange rate?
How is market cap calculated?
What is the theme of the song Yesterday by the Beatles?
What does up-to-date mean?
What does 'as of' mean in a contract?
How do I write a cron job that runs every day of this month?
""".strip().splitlines()


def test_there_are_enough_of_both() -> None:
    assert min(len(set(ABOUT_NOW)), len(set(LOOKS_LIKE_IT))) >= 40


@pytest.mark.parametrize("text", ABOUT_NOW)
def test_a_question_about_now_is_found_out(text: str) -> None:
    assert is_about_now(text)
    assert is_about_now(text.upper())
    assert obstacle(asked(said(text))) == "about-now"


@pytest.mark.parametrize("text", sorted(set(LOOKS_LIKE_IT) - set(REFUSED_WITHOUT_NEED)))
def test_a_question_that_only_looks_like_one_is_let_through(text: str) -> None:
    assert not is_about_now(text)


@pytest.mark.parametrize("text", REFUSED_WITHOUT_NEED)
def test_of_some_that_do_the_words_tell_no_difference(text: str) -> None:
    """It costs a hit, and nobody gets a wrong answer. One that is told apart some day belongs to the test above."""
    assert is_about_now(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hi.",
        "What is the capital of France?",
        "Knowledge is power.",
        "Write a haiku about snow.",
        "Renown",
        "Acknowledge the receipt.",
        "Translate 'good morning' into Spanish.",
        "What is 17 * 23?",
        "\ud83d",
    ],
)
def test_a_text_without_such_a_word_is_not_about_now(text: str) -> None:
    assert not is_about_now(text)


def test_a_question_after_a_long_document_is_read_too() -> None:
    assert is_about_now("A line of a document.\n" * 400 + "Given all that, what is the weather like today?")


@pytest.mark.parametrize(
    "unit", ["now ", "now", "now(", "last 1", "next 11111111 ", "what is the ", "current ", "as  ", "a"]
)
@pytest.mark.timeout(20)
def test_a_long_text_is_done_with_at_once(unit: str) -> None:
    is_about_now(unit * (1_000_000 // len(unit)))


# Answers

STARTED, FINISHED = Started(0, 5, 0, 0.0), Finished(0, "stop", 2)
PARIS = Delta(0, "Paris.", 2)


def ended(reason: FinishReason) -> list[Event]:
    return [STARTED, PARIS, Finished(0, reason, 2)]


@pytest.mark.parametrize(
    "events",
    [
        [STARTED, PARIS, FINISHED],
        [STARTED, Delta(0, "Par", 1), Delta(0, "is.", 1), FINISHED],
        [STARTED, ReasoningDelta(0, "Hm.", 1), PARIS, FINISHED],
        [STARTED, PARIS, Usage(5, 0, 2, 0, 0.001), FINISHED],
    ],
)
def test_a_whole_answer_is_kept(events: list[Event]) -> None:
    assert unfit(events) is None


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([], "failed"),
        ([STARTED], "failed"),
        ([STARTED, PARIS], "failed"),
        ([STARTED, PARIS, Failed(0, "engine_crashed", "")], "failed"),
        ([Failed(0, "overloaded", "")], "failed"),
        ([STARTED, PARIS, FINISHED, Failed(0, "engine_crashed", "")], "failed"),
        ([STARTED, PARIS, FINISHED, Started(1, 5, 5, 0.0), Delta(1, "Rome.", 2), Finished(1, "stop", 2)], "failed"),
        (ended("length"), "truncated"),
        (ended("content_filter"), "filtered"),
        (ended("tool_calls"), "tools"),
        ([STARTED, RefusalDelta(0, "I will not."), FINISHED], "filtered"),
        ([STARTED, PARIS, RefusalDelta(0, "I will not."), FINISHED], "filtered"),
        ([STARTED, ToolCallDelta(0, 0, "c", "look", ""), FINISHED], "tools"),
        ([STARTED, PARIS, ToolCallDelta(0, 0, "c", "look", ""), Finished(0, "tool_calls", 2)], "tools"),
    ],
)
def test_any_other_is_not(events: list[Event], why: str) -> None:
    assert unfit(events) == why


def test_every_way_to_end_but_one_is_unfit() -> None:
    assert [reason for reason in get_args(FinishReason) if unfit(ended(reason)) is None] == ["stop"]
