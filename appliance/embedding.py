"""The embedding model of this daemon: whether it is here, and how others ask it."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.routing.classifier import Embed
from appliance.routing.exemplars import Vector
from appliance.settings import Settings
from runtimes.embeddings.supervisor import Embedder
from runtimes.models import ModelStore

PATIENCE_S = 0.05  # for one text, which takes 6 ms; better a guess by words alone than one that comes late
PATIENCE_FOR_MANY_S = 120.0
EXEMPLARS_CACHE = "exemplars.npz"  # of the state folder


@dataclass(frozen=True, slots=True)
class EmbeddingFiles:
    tag: str  # changes with the model: its vectors compare with no other's
    model: Path
    tokenizer: Path


def embedding_files(settings: Settings, state_dir: Path) -> EmbeddingFiles | None:
    """None: it is switched off, or was not fetched."""
    name = settings.models.embedding
    stored = None if name is None else ModelStore(state_dir / "models", offline=True).resolve(name)
    if stored is None or stored.files is None or "tokenizer" not in stored.files:
        return None
    return EmbeddingFiles(f"{name}:{stored.sha256}", stored.path, stored.files["tokenizer"].path)


def embedder_of(files: EmbeddingFiles | None) -> Embedder | None:
    """Not started yet."""
    return None if files is None else Embedder(files.model, files.tokenizer, threads=1, environ=os.environ)


def embed_with(embedder: Embedder) -> Embed:
    """Raises `EmbeddingUnavailable`."""

    async def embed(texts: Sequence[str]) -> Sequence[Vector]:
        patience_s = PATIENCE_S if len(texts) == 1 else PATIENCE_FOR_MANY_S
        found = await embedder.embed(texts, asyncio.get_running_loop().time() + patience_s)
        return [embedding.vector for embedding in found]

    return embed
