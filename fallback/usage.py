"""Whether a provider's own count of tokens can be believed. Pure.

Tokenizers differ, by a factor of two or so on odd text, and providers add a few tokens of their own. What is further
off than that is wrong, whoever is to blame: then our count is used, and the row in the ledger is flagged.
"""

from dataclasses import dataclass
from typing import Literal

from fallback.wire.contract import Claimed

FACTOR = 4
MOST_REASONING_TOKENS = 1_000_000  # more than any model thinks for one answer
SLACK_TOKENS = 64  # marks around messages, tools' descriptions in another form

UsageFlag = Literal["usage-missing", "usage-doubtful", "price-unknown", "cost-uncertain"]


@dataclass(frozen=True, slots=True)
class Counted:
    """Tokens by our own tokenizer, of the texts that went out and came in."""

    prompt_tokens: int
    completion_tokens: int
    has_images: bool  # whose tokens we cannot count


def settled(claimed: Claimed | None, counted: Counted, *, complete: bool) -> tuple[Claimed, tuple[UsageFlag, ...]]:
    """The usage to go by. An answer that is not `complete` broke off before its usage came."""
    ours = Claimed(counted.prompt_tokens, 0, counted.completion_tokens, 0)
    if claimed is None:
        return ours, ("usage-missing",)
    prompt_fits = (claimed.prompt_tokens > 0 or not counted.prompt_tokens) and _fits(
        claimed.prompt_tokens, counted.prompt_tokens, at_most=not counted.has_images
    )
    if not complete:
        prompt, cached = (claimed.prompt_tokens, claimed.cached_tokens) if prompt_fits else (counted.prompt_tokens, 0)
        return Claimed(prompt, cached, counted.completion_tokens, 0), ("usage-missing",)
    thoughts_fit = claimed.reasoning_tokens <= MOST_REASONING_TOKENS
    if (
        prompt_fits
        and thoughts_fit
        and _fits(claimed.completion_tokens - claimed.reasoning_tokens, counted.completion_tokens)
    ):
        return claimed, ()
    return ours, ("usage-doubtful",)


def _fits(claimed: int, counted: int, *, at_most: bool = True) -> bool:
    return counted <= FACTOR * claimed + SLACK_TOKENS and (not at_most or claimed <= FACTOR * counted + SLACK_TOKENS)
