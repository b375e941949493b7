"""Texts of a megabyte made to keep a search busy: each is done with long before the test's own limit of time."""

import pytest

from appliance.protocol import ChatPrompt, Message, Request, TextPart
from appliance.routing.cue import cue_of_texts
from fallback.redaction import Redaction

N = 1_000_000
PIECES = ["word ", "a", "a.", "a@", "a@a.", "1", "1 ", "+1 ", "4111-", "eyJ", "eyJaaaaaaaa.", "sk-", "key=",
          "password: ", "-----BEGIN RSA PRIVATE KEY-----\n", "http://a:", "(1)", "[EMAIL_1]", "\t \n", "\u00e9",
          "<document>", '"', '"a', "task: ", "\n", ": \n", "#### task", "```", " ", "{", "<text></texts>"]  # fmt: skip
TEXTS = [piece * (N // len(piece)) for piece in PIECES] + [" ".join(f"u{i}@ex.org" for i in range(N // 14))]

pytestmark = pytest.mark.timeout(30)  # the worst takes 1 s; a search that is not linear takes hours


@pytest.mark.parametrize("text", TEXTS, ids=[*PIECES, "addresses"])
def test_the_search_for_what_is_private_ends(text: str) -> None:
    redaction = Redaction(frozenset({"secret", "email", "phone", "card"}))
    redaction.outward(Request("r", "m", (ChatPrompt((Message("user", (TextPart(text),)),)),)))


@pytest.mark.parametrize("text", TEXTS, ids=[*PIECES, "addresses"])
def test_the_search_for_the_instruction_ends(text: str) -> None:
    assert len(cue_of_texts(text, text).text) < 2000
