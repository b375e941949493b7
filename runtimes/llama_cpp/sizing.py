"""How long sequences may get and how many KV cells to keep, from what the model needs and the memory there is. Pure."""

from dataclasses import dataclass

from runtimes.contracts import ModelLoadError

DEFAULT_CONTEXT_TOKENS = 8192  # agents' histories fit; twice the context doubles what one request may hold
CELLS_PER_SLOT = 1024  # prompts share prefixes, and few streams are long at the same moment
LEAST_CONTEXT_TOKENS = 512
# Of the free memory, what a model and its cache may take: the rest is for compute buffers and other programs.
SHARE_OF_FREE = 0.8


@dataclass(frozen=True, slots=True)
class Sizes:
    context_tokens: int
    kv_tokens: int


def plan(
    *,
    trained_context_tokens: int,
    context_tokens: int | None,
    kv_tokens: int | None,
    slots: int,
    model_bytes: int,
    kv_bytes_per_token: int,
    free_bytes: int,
) -> Sizes:
    """Sizes as asked for, or the best that fits.

    Raises `ModelLoadError` when the model, or what was asked for, cannot fit into `free_bytes`.
    """
    trained = trained_context_tokens or DEFAULT_CONTEXT_TOKENS
    context = context_tokens or min(trained, DEFAULT_CONTEXT_TOKENS)
    if context > trained:
        raise ModelLoadError(
            f"engine.context_tokens is {context}, but the model was trained on {trained}: set {trained} or less"
        )
    wanted = kv_tokens or max(context, slots * CELLS_PER_SLOT)
    if kv_tokens is not None and context > kv_tokens:
        if context_tokens is not None:
            raise ModelLoadError(
                f"engine.kv_tokens is {kv_tokens}, less than engine.context_tokens, {context}: "
                "one request must fit the cache"
            )
        context = kv_tokens
    affordable = int(free_bytes * SHARE_OF_FREE - model_bytes) // max(1, kv_bytes_per_token)
    if affordable >= wanted:
        return Sizes(context, wanted)
    asked = kv_tokens or context_tokens or 0
    if affordable < max(asked, LEAST_CONTEXT_TOKENS):
        needed = (model_bytes + max(asked, LEAST_CONTEXT_TOKENS) * kv_bytes_per_token) / SHARE_OF_FREE
        raise ModelLoadError(
            f"the model needs {needed / 1e9:.1f} GB of free memory and there is {free_bytes / 1e9:.1f} GB: "
            "choose a smaller model (`appliance models --recommend`), or lower engine.kv_tokens"
        )
    return Sizes(min(context, affordable), affordable)
