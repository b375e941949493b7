"""Log-probabilities of a drawn token and of the likeliest ones, from the model's own logits (before sampling)."""

from collections.abc import Callable

import numpy as np

from appliance.protocol import TokenLogprob
from runtimes.contracts import Logits


def token_logprob(logits: Logits, token: int, top: int, token_bytes: Callable[[int], bytes]) -> TokenLogprob:
    """`logits` has shape (n_vocab,); `top` is how many of the likeliest tokens to list, likeliest first."""
    highest = float(logits.max())
    log_sum = highest + float(np.log(np.exp(logits - highest, dtype=np.float64).sum()))

    def entry(i: int) -> TokenLogprob:
        return TokenLogprob(i, token_bytes(i), float(logits[i]) - log_sum)

    likeliest: list[int] = []
    if top:
        head = np.argpartition(logits, -top)[-top:]
        likeliest = [int(i) for i in head[np.argsort(-logits[head], kind="stable")]]
    own = entry(token)
    return TokenLogprob(own.token_id, own.token, own.logprob, tuple(entry(i) for i in likeliest))
