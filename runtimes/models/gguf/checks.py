"""What llama.cpp would refuse, or abort the process on, although the file is well formed: the model's shape.

Written against llama.cpp's loader (`llama-model.cpp`), whose assertions end the process. The vocabulary is
`tokenizer`. Knows nothing of whether the model is any good.
"""

from typing import Final

from runtimes.models.errors import InvalidGGUF
from runtimes.models.gguf.encoding import ValueType
from runtimes.models.gguf.facts import Facts

MAX_LAYERS: Final = 512  # LLAMA_MAX_LAYERS
MAX_EXPERTS: Final = 1_024  # LLAMA_MAX_EXPERTS
ROPE_SCALINGS: Final = ("none", "linear", "yarn", "longrope")
# Architectures that llama.cpp loads and that produce no text.
NOT_LANGUAGE_MODELS: Final = {"clip": "a vision projector", "wavtokenizer-dec": "an audio decoder"}
# ggml's types of activations and indices
NOT_WEIGHTS: Final = ("Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64")
COMPANIONS: Final = ("adapter", "mmproj", "imatrix", "vocab")


def check(facts: Facts) -> None:
    """Raise InvalidGGUF for a file that llama.cpp could not be given safely."""
    if not facts.header.tensors:
        raise InvalidGGUF("it has no tensors: it is a vocabulary or a first part, not a model")
    _check_kind(facts)
    _check_split(facts)
    _check_types(facts)
    layers = _check_shape(facts)
    _check_experts(facts, layers)


def _check_kind(facts: Facts) -> None:
    what = NOT_LANGUAGE_MODELS.get(facts.architecture)
    if what:
        raise facts.wrong("general.architecture", f"is {facts.architecture!r}: {what}, not a language model")
    kind = facts.text("general.type")
    if kind in COMPANIONS:
        raise facts.wrong("general.type", f"is {kind!r}: a companion of a model, not a model")


def _check_split(facts: Facts) -> None:
    parts = facts.integer("split.count", ValueType.UINT16) or 0
    if parts > 1:
        number = facts.integer("split.no", ValueType.UINT16) or 0
        raise facts.wrong(
            "split.count",
            f"is {parts}: this is part {number + 1} of a model in {parts} files and the other {parts - 1} are missing."
            " Choose a repository that has the model in one file, or join the parts with"
            " `llama-gguf-split --merge`",
        )


def _check_types(facts: Facts) -> None:
    """Types that a file can hold and that no operator takes: the process ends when the first batch is computed."""
    for tensor in facts.header.tensors:
        if tensor.type in NOT_WEIGHTS:
            raise InvalidGGUF(f"tensor {tensor.name} has the type {tensor.type}, in which no weights are kept")
        if len(tensor.shape) < 2 and tensor.type != "F32":  # norms and biases
            raise InvalidGGUF(f"tensor {tensor.name} has one dimension and the type {tensor.type}; it must be F32")


def _check_shape(facts: Facts) -> int:
    prefix = facts.architecture
    layers = facts.positive(f"{prefix}.block_count")
    if layers > MAX_LAYERS:
        raise facts.wrong(f"{prefix}.block_count", f"is {layers}; llama.cpp has room for {MAX_LAYERS}")
    facts.positive(f"{prefix}.context_length")
    width = facts.positive(f"{prefix}.embedding_length")
    for name in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
        facts.per_layer(f"{prefix}.{name}", layers)
    predicted = f"{prefix}.nextn_predict_layers"
    if (facts.integer(predicted) or 0) > layers:
        raise facts.wrong(predicted, f"is larger than block_count, {layers}")
    scaling = f"{prefix}.rope.scaling.type"
    if facts.text(scaling) not in (None, *ROPE_SCALINGS):
        raise facts.wrong(scaling, f"is {facts.text(scaling)!r}; llama.cpp knows {', '.join(ROPE_SCALINGS)}")
    embedding = facts.tensor("token_embd.weight")
    if embedding is not None and (len(embedding.shape) != 2 or embedding.shape[0] != width):
        shape = list(embedding.shape)
        raise InvalidGGUF(f"token_embd.weight has the shape {shape} for an embedding_length of {width}")
    return layers


def _check_experts(facts: Facts, layers: int) -> None:
    """llama.cpp asserts every one of these."""
    prefix = facts.architecture
    if prefix.startswith("hunyuan"):  # it resets a single expert to none before it looks
        return
    experts = facts.integer(f"{prefix}.expert_count") or 0
    used = max(facts.per_layer(f"{prefix}.expert_used_count", layers) or (0,))
    groups = facts.integer(f"{prefix}.expert_group_count") or 0
    groups_used = facts.integer(f"{prefix}.expert_group_used_count") or 0
    sound = experts <= MAX_EXPERTS and used <= experts
    if experts:
        sound = sound and used > 0 and groups < experts
        if groups > 1:
            sound = sound and experts % groups == 0 and 0 < groups_used < groups
    else:
        sound = sound and groups == 0
    if not sound:
        raise facts.wrong(
            f"{prefix}.expert_count",
            f"is {experts}, which does not go with {used} used, in {groups} groups of which {groups_used} are used",
        )
