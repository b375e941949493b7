"""Whether the cache would answer one request with the answer to another, decided as the daemon does once warm.

Nothing is stored, and no model is asked for an answer.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from appliance.api.openai.chat_request import parse_chat
from appliance.cache_setup import embed_whole
from appliance.embedding import embedder_of, embedding_files
from appliance.protocol import Request
from appliance.settings import Settings
from cache.cache import LEAST_SIMILAR
from cache.canonical import identify
from cache.eligibility import not_semantic, obstacle
from cache.verifier.verdict import Verifier
from runtimes.embeddings.supervisor import EmbeddingUnavailable

PATIENCE_S = 30.0  # the model may have to be loaded first


@dataclass(frozen=True, slots=True)
class Explanation:
    hit: bool
    similarity: float | None  # None: not compared
    guards: tuple[str, ...]  # that refused
    judge: float | None  # None: not asked


class CacheExplainer:
    """An asynchronous context: it runs the embedding model."""

    def __init__(self, settings: Settings, state_dir: Path) -> None:
        self._policy = settings.cache.policy
        files = embedding_files(settings, state_dir)
        self._verifier = Verifier()
        self._embedder = embedder_of(files)

    async def __aenter__(self) -> Self:
        if self._embedder is not None:
            self._embedder.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._embedder is not None:
            await self._embedder.stop()

    async def explain(self, a: str | Mapping[str, Any], b: str | Mapping[str, Any]) -> Explanation:
        """Of two texts, or whole bodies of chat completions. Raises `InvalidRequest`."""
        first, second = _request(a), _request(b)
        why = obstacle(first, sampled=self._policy.sampled) or obstacle(second, sampled=self._policy.sampled)
        if why is not None:
            return Explanation(hit=False, similarity=None, guards=(why,), judge=None)
        one, other = identify(first, "", ""), identify(second, "", "")
        if one.key == other.key:
            return Explanation(hit=True, similarity=1.0, guards=(), judge=1.0)
        why = "fingerprint" if one.fingerprint != other.fingerprint else not_semantic(other, second.hints, self._policy)
        if why is not None:
            return Explanation(hit=False, similarity=None, guards=(why,), judge=None)
        similarity = await self._similarity(one.text, other.text)
        if similarity is None:
            return Explanation(hit=False, similarity=None, guards=("embedding",), judge=None)
        verdict = self._verifier.verdict(one.text, other.text, similarity)
        guards = verdict.guards if similarity >= LEAST_SIMILAR else (*verdict.guards, "similarity")
        hit = not guards and verdict.judge >= self._policy.cold_level
        return Explanation(hit, round(similarity, 4), guards, round(verdict.judge, 4))

    async def _similarity(self, a: str, b: str) -> float | None:
        if self._embedder is None:
            return None
        embed = embed_whole(self._embedder, PATIENCE_S)
        with suppress(EmbeddingUnavailable):
            first, second = await embed(a), await embed(b)
            if first is not None and second is not None and first.whole and second.whole:
                return float(first.vector @ second.vector)
        return None


def _request(given: str | Mapping[str, Any]) -> Request:
    body: Mapping[str, Any] = (
        {"messages": [{"role": "user", "content": given}], "temperature": 0} if isinstance(given, str) else given
    )
    return parse_chat({"model": "auto", **body}, {}, "explained")
