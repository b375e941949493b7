"""The cache of this daemon: its file, its embedding model, its verifier."""

import asyncio
import functools
import hashlib
import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from appliance.cache_settings import CacheSettings
from appliance.embedding import EmbeddingFiles
from appliance.engines import ServedModel
from appliance.settings import Settings
from cache.cache import Embed, Embedded, SameAnswer, SemanticCache
from cache.store import Store
from cache.verifier.verdict import Verifier
from runtimes.embeddings.supervisor import Embedder, EmbeddingUnavailable

CACHE_FILE: Final = "cache.db"
PATIENCE_S: Final = 0.1  # for an embedding; a lookup that takes longer is a miss
LONGEST_CHARACTERS: Final = 1_200  # some 256 tokens, which the embedding model sees; a longer text is not embedded

log = logging.getLogger(__name__)


def cache_of(
    settings: CacheSettings,
    path: Path,
    files: EmbeddingFiles | None,
    embedder: Embedder | None,
    realm: str,
    *,
    second_opinion: SameAnswer | None = None,
) -> SemanticCache:
    """`realm` names what answers. The verifier is loaded when there is something to verify."""
    store = Store(path, time.time, max_bytes=settings.max_bytes, max_entries=settings.max_entries)
    return SemanticCache(
        store,
        functools.cache(Verifier),
        None if embedder is None else embed_whole(embedder),
        settings.policy,
        tag="" if files is None else files.tag,
        realm=realm,
        second_opinion=second_opinion,
    )


def embed_whole(embedder: Embedder, patience_s: float = PATIENCE_S) -> Embed:
    async def embed(text: str) -> Embedded | None:
        if len(text) > LONGEST_CHARACTERS:
            return None
        try:
            (found,) = await embedder.embed([text], asyncio.get_running_loop().time() + patience_s)
        except EmbeddingUnavailable as error:
            log.debug("no embedding for a lookup", extra={"fields": {"reason": str(error)}})
            return None
        return Embedded(found.vector, whole=not found.truncated)

    return embed


def realm_of(models: Sequence[ServedModel], settings: Settings) -> str:
    """What would answer: these files, these providers' models, under this policy."""
    policy = settings.routing.model_dump(mode="json", exclude={"min_margin", "escalating_stream", "privacy", "redact"})
    providers = [[provider.name, provider.model] for provider in settings.frontier.providers]
    local = [[model.name, *_identity(model.path)] for model in models]
    said = json.dumps([local, providers, policy, settings.engine.context_tokens], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


def _identity(path: Path) -> list[int]:
    try:
        status = path.stat()
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns]
