"""The model store: which models there are, which are here, and what is in their files.

    store = ModelStore(state_dir / "models", offline=False)
    store.resolve("smollm2-135m-instruct")      # a StoredModel, or None
    store.pull("hf:ORG/REPO:Q4_K_M", progress)  # a StoredModel, downloaded, checked, proven
    read_model(path)                            # a ModelSummary of a GGUF file

Knows the disk and the way to models; knows no engine and nothing of the daemon.
"""

from runtimes.models.catalogue import Catalogue, CatalogueEntry, load_catalogue
from runtimes.models.errors import (
    ChecksumMismatch,
    DownloadFailed,
    InvalidGGUF,
    ModelError,
    NotEnoughDisk,
    OfflineError,
    UnknownModel,
)
from runtimes.models.gguf import GGUFHeader, ModelSummary, read_header, read_model
from runtimes.models.machine import Memory, read_memory
from runtimes.models.manifest import StoredFile, StoredModel
from runtimes.models.recommend import Recommendation, recommend
from runtimes.models.sources import Gate
from runtimes.models.store import ModelStore, Progress, Step

__all__ = [
    "Catalogue",
    "CatalogueEntry",
    "ChecksumMismatch",
    "DownloadFailed",
    "GGUFHeader",
    "Gate",
    "InvalidGGUF",
    "Memory",
    "ModelError",
    "ModelStore",
    "ModelSummary",
    "NotEnoughDisk",
    "OfflineError",
    "Progress",
    "Recommendation",
    "Step",
    "StoredFile",
    "StoredModel",
    "UnknownModel",
    "load_catalogue",
    "read_header",
    "read_memory",
    "read_model",
    "recommend",
]
