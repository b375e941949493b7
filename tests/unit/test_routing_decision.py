"""Where a request goes: what must stay stays, what the agent says beats what is guessed, and the rest is policy."""

from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.errors import InvalidRequest, Offline
from appliance.frontier_settings import RoutingSettings, Treatment
from appliance.protocol import ChatPrompt, Hints, ImagePart, Message, Privacy, Request, StepKind, TextPart, ToolCall
from appliance.routing.decision import Decision, Guess, Place, Situation, decide

STEPS: tuple[StepKind, ...] = get_args(StepKind)
USER = Message("user", (TextPart("Hi."),))
IMAGE = Message("user", (ImagePart("https://x.example/a.png"),))
LOOP = (USER, Message("assistant", (), tool_calls=(ToolCall("c", "f", "{}"),)), Message("tool", (), tool_call_id="c"))
NOW = Situation(
    local_models=frozenset({"small"}),
    has_frontier=True,
    offline=False,
    excluded_field=None,
    too_long=False,
    before=None,
    guess=Guess(None, 0.0),
)
POLICY = RoutingSettings(synthesize="frontier", chat="local", code="local-then-escalate", unsure="local-then-escalate")


def asked(model: str = "auto", *messages: Message, step: StepKind | None = None, privacy: Privacy = "any") -> Request:
    return Request("r", model, (ChatPrompt(messages or (USER,)),), hints=Hints(step=step, privacy=privacy))


def decided(request: Request, policy: RoutingSettings = POLICY, **now: Any) -> Decision:
    return decide(request, policy, replace(NOW, **now))


def way(request: Request, policy: RoutingSettings = POLICY, **now: Any) -> tuple[str, str]:
    found = decided(request, policy, **now)
    return found.route, found.reason


# What must stay

situations = st.builds(
    Situation,
    local_models=st.sampled_from((frozenset({"small"}), frozenset({"frontier"}))),
    has_frontier=st.booleans(),
    offline=st.booleans(),
    excluded_field=st.sampled_from((None, "logit_bias")),
    too_long=st.booleans(),
    before=st.sampled_from((None, "local", "frontier")),
    guess=st.builds(Guess, st.sampled_from((None, *STEPS)), st.floats(0, 1)),
)
treatments = st.sampled_from(get_args(Treatment))
policies = st.builds(
    RoutingSettings,
    synthesize=treatments,
    chat=treatments,
    extract=treatments,
    unsure=treatments,
    offline=st.sampled_from(("local", "refuse")),
    privacy=st.sampled_from(("any", "local-only")),
)
requests = st.builds(
    lambda model, messages, step, privacy: asked(model, *messages, step=step, privacy=privacy),
    st.sampled_from(("auto", "local", "frontier", "small")),
    st.sampled_from(((USER,), (IMAGE,), LOOP)),
    st.sampled_from((None, *STEPS)),
    st.sampled_from(("any", "local-only")),
)


@given(request_=requests, policy=policies, now=situations)
def test_what_must_not_leave_the_machine_never_does(request_: Request, policy: RoutingSettings, now: Situation) -> None:
    if request_.hints.privacy != "local-only" and policy.privacy != "local-only":
        request_ = replace(request_, hints=replace(request_.hints, privacy="local-only"))
    found = decide(request_, policy, now)  # and nobody is refused for it
    assert found.route == "local"
    assert not found.may_escalate


@given(request_=requests, policy=policies, now=situations)
def test_nothing_goes_out_offline_or_without_a_provider(
    request_: Request, policy: RoutingSettings, now: Situation
) -> None:
    for cut_off in (replace(now, offline=True), replace(now, has_frontier=False)):
        with suppress(Offline):
            assert decide(request_, policy, cut_off).route == "local"


@given(request_=requests, policy=policies, now=situations)
def test_what_no_provider_can_be_told_is_not_sent_to_one(
    request_: Request, policy: RoutingSettings, now: Situation
) -> None:
    with suppress(Offline, InvalidRequest):
        assert decide(request_, policy, replace(now, excluded_field="logit_bias")).route == "local"


@given(request_=requests, policy=policies, now=situations)
def test_the_same_is_decided_of_the_same_and_in_one_word(
    request_: Request, policy: RoutingSettings, now: Situation
) -> None:
    def outcome() -> Decision | str:
        try:
            return decide(request_, policy, now)
        except (Offline, InvalidRequest) as error:
            return str(error)

    found = outcome()
    assert found == outcome()
    if isinstance(found, Decision):
        assert found.reason
        assert found.reason.replace("-", "").isalpha()
        assert found.reason.islower()
        assert not (found.may_escalate and found.place == "frontier")
        assert not (found.degraded and found.place == "frontier")
        assert not (found.degraded and found.may_escalate)


@pytest.mark.parametrize("who", ["request", "policy"])
def test_privacy_goes_before_the_name_frontier(who: str) -> None:
    request = asked("frontier", privacy="local-only" if who == "request" else "any")
    policy = POLICY.model_copy(update={"privacy": "local-only" if who == "policy" else "any"})
    found = decided(request, policy)
    assert (found.place, found.reason, found.degraded) == ("local", "local-only", True)


def test_what_was_for_the_local_model_anyway_is_not_called_degraded() -> None:
    assert not decided(asked("local", privacy="local-only")).degraded
    assert not decided(asked(step="chat", privacy="local-only")).degraded
    assert not decided(asked(step="code", privacy="local-only")).degraded  # its own answer is the first choice


# What the agent says


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("local", ("local", "local-alias")),
        ("small", ("local", "model-name")),
        ("frontier", ("frontier", "frontier-alias")),
    ],
)
def test_a_place_that_is_named_beats_everything_that_is_guessed(model: str, expected: tuple[str, str]) -> None:
    for step in (None, *STEPS):
        for before in (None, "local", "frontier"):
            for messages in ((USER,), (IMAGE,), LOOP):
                request = asked(model, *messages, step=step)
                assert way(request, before=before, too_long=True, guess=Guess("synthesize", 1.0)) == expected
                assert decided(request).explicit


def test_a_local_model_may_be_called_frontier() -> None:
    assert way(asked("frontier"), local_models=frozenset({"frontier"})) == ("local", "model-name")


def test_a_step_that_is_said_beats_the_guess() -> None:
    assert way(asked(step="chat"), guess=Guess("synthesize", 1.0)) == ("local", "step-chat")
    assert way(asked(step="synthesize"), guess=Guess("chat", 1.0)) == ("frontier", "step-synthesize")
    assert way(asked(step="code"), guess=Guess("chat", 1.0)) == ("local-then-escalate", "step-code")
    assert decided(asked(step="code"), guess=Guess("chat", 1.0)).step == "code"


def test_a_step_that_is_said_beats_what_the_request_looks_like_and_where_the_conversation_was() -> None:
    assert way(asked("auto", USER, step="chat"), before="frontier") == ("local", "step-chat")
    assert way(asked("auto", USER, step="chat"), too_long=True) == ("local", "step-chat")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("treatment", get_args(Treatment))
def test_each_step_goes_where_the_policy_says(step: StepKind, treatment: Treatment) -> None:
    policy = POLICY.model_copy(update={step: treatment})
    assert way(asked(step=step), policy) == (treatment, f"step-{step}")
    assert way(asked(), policy, guess=Guess(step, 0.9)) == (treatment, f"looks-like-{step}")


# What is guessed


def test_a_guess_that_is_not_certain_enough_counts_as_unsure() -> None:
    policy = POLICY.model_copy(update={"min_confidence": 0.6})
    assert way(asked(), policy, guess=Guess("synthesize", 0.6)) == ("frontier", "looks-like-synthesize")
    assert way(asked(), policy, guess=Guess("synthesize", 0.59)) == ("local-then-escalate", "unsure")
    found = decided(asked(), policy, guess=Guess("synthesize", 0.59))
    assert (found.step, found.confidence) == (None, 0.59)
    assert way(asked(), policy.model_copy(update={"min_confidence": 0.0})) == ("local-then-escalate", "unsure")


def test_what_the_local_model_cannot_take_goes_to_the_frontier() -> None:
    assert way(asked("auto", IMAGE), guess=Guess("chat", 1.0)) == ("frontier", "images")
    assert way(asked(), too_long=True, guess=Guess("chat", 1.0)) == ("frontier", "too-long")


# Conversations


@pytest.mark.parametrize(
    ("place", "step", "expected"),
    [
        ("local", None, ("local", "tool-loop")),
        ("frontier", None, ("frontier", "tool-loop")),
        ("frontier", "chat", ("frontier", "tool-loop")),
        ("local", "chat", ("local", "step-chat")),
        ("local", "synthesize", ("frontier", "step-synthesize")),  # the agent says that the last step has come
    ],
)
def test_a_tool_loop_stays_where_it_began_or_moves_up(
    place: Place, step: StepKind | None, expected: tuple[str, str]
) -> None:
    assert way(asked("auto", *LOOP, step=step), before=place, guess=Guess("synthesize", 1.0)) == expected


def test_a_tool_loop_of_which_nobody_knows_where_it_began_is_like_any_request() -> None:
    assert way(asked("auto", *LOOP), guess=Guess("synthesize", 1.0)) == ("frontier", "looks-like-synthesize")


def test_a_loop_is_over_when_the_user_speaks_again() -> None:
    assert way(asked("auto", *LOOP, USER), before="local", guess=Guess("synthesize", 1.0))[1] == "looks-like-synthesize"


def test_a_conversation_that_went_up_stays_up_and_one_here_may_go_up() -> None:
    assert way(asked(), before="frontier", guess=Guess("chat", 1.0)) == ("frontier", "conversation")
    assert way(asked(), before="local", guess=Guess("synthesize", 1.0)) == ("frontier", "looks-like-synthesize")
    assert way(asked(), before="local", guess=Guess("chat", 1.0)) == ("local", "looks-like-chat")


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ({"offline": True}, "offline"),
        ({"has_frontier": False}, "no-frontier"),
        ({"excluded_field": "n"}, "inexpressible"),
    ],
)
def test_what_the_frontier_cannot_have_is_answered_here_and_says_so(now: dict[str, Any], reason: str) -> None:
    for request in (asked(step="synthesize"), asked("auto", IMAGE), asked("auto", *LOOP)):
        found = decided(request, before="frontier", **now)
        assert (found.route, found.reason, found.degraded) == ("local", reason, True)
    checked = decided(asked(step="code"), **now)
    assert (checked.route, checked.reason, checked.degraded) == ("local", "step-code", False)


def test_offline_steps_for_the_frontier_may_be_refused_and_others_are_not() -> None:
    policy = POLICY.model_copy(update={"offline": "refuse"})
    with pytest.raises(Offline):
        decided(asked(step="synthesize"), policy, offline=True)
    assert decided(asked(step="code"), policy, offline=True).route == "local"
    assert decided(asked(step="chat"), policy, offline=True).route == "local"
    assert decided(asked(step="synthesize", privacy="local-only"), policy, offline=True).reason == "local-only"


def test_who_asks_for_the_frontier_by_name_is_not_answered_by_another() -> None:
    with pytest.raises(Offline):
        decided(asked("frontier"), offline=True)
    with pytest.raises(Offline):
        decided(asked("frontier"), has_frontier=False)
    with pytest.raises(InvalidRequest) as caught:
        decided(asked("frontier"), excluded_field="logit_bias")
    assert caught.value.param == "logit_bias"


# For want of room


@pytest.mark.parametrize("treatment", ["local", "local-then-escalate"])
def test_what_a_full_machine_may_pass_on(treatment: Treatment) -> None:
    policy = POLICY.model_copy(update={"chat": treatment})
    request = asked(step="chat")
    assert decided(request, policy).may_overflow
    for kept in (
        decided(asked("local", step="chat"), policy),
        decided(asked("small", step="chat"), policy),
        decided(asked(step="chat", privacy="local-only"), policy),
        decided(request, policy.model_copy(update={"saturated": "wait"})),
        decided(request, policy, offline=True),
        decided(request, policy, has_frontier=False),
        decided(request, policy, excluded_field="seed"),
        decided(replace(request, hints=replace(request.hints, criticality="critical")), policy),
        decided(replace(request, hints=replace(request.hints, criticality="sheddable")), policy),
    ):
        assert kept.place == "local"
        assert not kept.may_overflow


def test_what_is_for_the_frontier_anyhow_does_not_overflow() -> None:
    assert not decided(asked(step="synthesize")).may_overflow
