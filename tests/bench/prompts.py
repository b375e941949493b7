"""Prompts that look like an agent's work: made from a seed, each one different, so that no cache answers for an engine.

Pure: the same seed gives the same text.
"""

import random
from collections.abc import Iterator

_TASKS = (
    "Summarise for a colleague what went wrong with {thing} at {place} and name the two most likely causes.",
    "Write a short, polite reply to a customer in {place} who reports that {thing} stopped working after the update.",
    "List the steps that a technician should take in {place} before replacing {thing}, in the right order.",
    "Explain to a new member of the team in {place} why {thing} is checked every morning and what to look for.",
    "Draft a note for the weekly report about {thing} at {place}: what was done, what is open, who is asked to act.",
    "Compare two ways of repairing {thing} at {place} and say which one you would choose and why.",
)
_THINGS = (
    "the backup power supply", "the invoice export", "the cooling pump", "the login page", "the label printer",
    "the nightly database copy", "the conveyor sensor", "the booking calendar", "the water meter", "the fire door",
    "the payment terminal", "the weather station", "the parcel scanner", "the search index", "the mail gateway",
)  # fmt: skip
_PLACES = (
    "Lisbon", "the north warehouse", "Oslo", "the second floor", "Tallinn", "the harbour office", "Graz", "Leeds",
    "the test laboratory", "Ghent", "the regional depot", "Porto", "the main hall", "Aarhus", "the clinic", "Turin",
)  # fmt: skip
_LIMITS = (
    "Use at most four sentences.", "Keep it under eighty words.", "Write for a reader in a hurry.",
    "Do not use technical terms.", "Begin with the conclusion.", "End with one clear question.",
)  # fmt: skip
_RULES = (
    "When a request mentions {thing}, ask which unit at {place} is meant before anything is ordered.",
    "Work on {thing} at {place} needs the written consent of the shift leader and is entered in the log at once.",
    "Never promise a date for {thing}; say that {place} will confirm one within two working days.",
    "If {thing} fails at {place} twice in a week, open a case with the supplier and attach both reports.",
    "Costs for {thing} above three hundred euros are approved by {place}, below that by the team itself.",
)


def user_prompts(seed: str) -> Iterator[str]:
    """An endless series of distinct prompts of some 40 to 60 tokens. Each opens with its own case number, so that two
    prompts of any seeds part within their first words."""
    rng = random.Random(seed)
    while True:
        task = rng.choice(_TASKS).format(thing=rng.choice(_THINGS), place=rng.choice(_PLACES))
        case = rng.randrange(10**8)
        yield f"{case:08d} is the number of this case. {task} {rng.choice(_LIMITS)}"


def system_prompt(seed: str, rules: int) -> str:
    """House rules for a support agent, some 27 tokens a rule; another seed differs from the first words on."""
    rng = random.Random(seed)
    site = rng.randrange(10**8)
    lines = [
        f"{number}. {rng.choice(_RULES).format(thing=rng.choice(_THINGS), place=rng.choice(_PLACES))}"
        for number in range(1, rules + 1)
    ]
    return "\n".join([f"Site {site:08d}. You support the technicians of this site. Follow the house rules.", *lines])
