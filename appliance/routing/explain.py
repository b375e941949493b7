"""Decisions outside the daemon, for those who want to know: the same policy and classifier, and no engine."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from appliance.api.openai.chat_request import parse_chat
from appliance.embedding import EXEMPLARS_CACHE, embed_with, embedder_of, embedding_files
from appliance.engines import FRONTIER_ALIAS, LOCAL_ALIASES
from appliance.errors import ModelNotFound
from appliance.protocol import Request
from appliance.routing.classifier import Classifier, Embed
from appliance.routing.decision import Decision, Situation, decide
from appliance.routing.exemplars import load_exemplars
from appliance.settings import Settings
from fallback import excluded_by


class Explainer:
    """An async context manager: the embedding model runs while it is open."""

    def __init__(self, settings: Settings, state_dir: Path, *, is_offline: bool) -> None:
        self._settings = settings
        self._is_offline = is_offline
        self._cache = state_dir / EXEMPLARS_CACHE
        self._embedder = embedder_of(embedding_files(settings, state_dir))
        embed: Embed | None = None if self._embedder is None else embed_with(self._embedder)
        self._classifier = Classifier(load_exemplars(), embed)
        self._providers = [provider.provider() for provider in settings.frontier.providers]

    async def __aenter__(self) -> Self:
        if self._embedder is not None:
            self._embedder.start()
        await self._classifier.prepare(self._cache)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._embedder is not None:
            await self._embedder.stop()

    async def explain(self, body: object, headers: Mapping[str, str]) -> Decision:
        """Raises an `ApplianceError`."""
        request = parse_chat(body, headers, "explained")
        return decide(request, self._settings.routing, await self._situation(request))

    async def _situation(self, request: Request) -> Situation:
        served = frozenset(self._settings.models.serve)
        if request.model not in (*served, *LOCAL_ALIASES, FRONTIER_ALIAS):
            raise ModelNotFound(f"The model {request.model[:100]!r} is not served here.", param="model")
        return Situation(
            local_models=served,
            has_frontier=bool(self._providers),
            offline=self._is_offline,
            excluded_field=_excluded([excluded_by(request, provider) for provider in self._providers]),
            too_long=False,  # how long is too long is the model's to say, and none is loaded
            before=None,
            guess=await self._classifier.guess(request),
        )


def _excluded(fields: Sequence[str | None]) -> str | None:
    return None if None in fields else next(iter(fields), None)
