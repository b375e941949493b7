"""`GET /v1/models` and `GET /v1/models/{id}`."""

from typing import Any

from fastapi import APIRouter, Request

from appliance.api.openai.models import ServedModel, model_body, models_body
from appliance.api.routes.description import errors
from appliance.api.state import daemon
from appliance.engines import FRONTIER_ALIAS, LOCAL_ALIASES, Engines
from appliance.errors import ModelNotFound

router = APIRouter()
OWNER = "inference-appliance"


def _listed(engines: Engines) -> list[ServedModel]:
    statuses = {name: supervisor.status() for name, supervisor in engines.supervisors.items()}

    def described(shown: str, name: str, created: int) -> ServedModel:
        info = statuses[name].info
        return ServedModel(shown, created, OWNER, info.context_tokens if info else None)

    first = engines.models[0]
    return [
        *(described(alias, first.name, first.created) for alias in LOCAL_ALIASES),
        ServedModel(FRONTIER_ALIAS, first.created, OWNER, None),
        *(described(model.name, model.name, model.created) for model in engines.models),
    ]


@router.head("/v1/models", include_in_schema=False)
@router.get("/v1/models", responses=errors(401, 403, 429))
async def list_models(request: Request) -> dict[str, Any]:
    """The models and aliases that `model` may name."""
    return models_body(_listed(daemon(request).engines))


@router.head("/v1/models/{model:path}", include_in_schema=False)
@router.get("/v1/models/{model:path}", responses=errors(401, 403, 404, 429))
async def read_model(request: Request, model: str) -> dict[str, Any]:
    """One of them."""
    for listed in _listed(daemon(request).engines):
        if listed.id == model:
            return model_body(listed)
    raise ModelNotFound(f"The model {model[:100]!r} is not served here: GET /v1/models lists those that are.")
