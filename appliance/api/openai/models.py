"""The bodies of `GET /v1/models` and `GET /v1/models/{id}`. Knows no catalogue: the caller has the models."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ServedModel:
    id: str
    created: int  # Unix time in seconds
    owned_by: str
    context_tokens: int | None  # null while the model is not loaded


def model_body(model: ServedModel) -> dict[str, Any]:
    return {
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": model.owned_by,
        "context_length": model.context_tokens,  # what clients of OpenRouter read
        "max_model_len": model.context_tokens,  # what clients of vLLM read
    }


def models_body(models: Iterable[ServedModel]) -> dict[str, Any]:
    return {"object": "list", "data": [model_body(model) for model in models]}
