"""What all tests share: the small real models."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The default model's GGUF file: $APPLIANCE_TEST_MODEL, else the model store's, fetched when missing."""
    given = os.environ.get("APPLIANCE_TEST_MODEL")
    if given:
        return Path(given)
    from appliance.settings import state_dir  # noqa: PLC0415 - only where no file is given
    from runtimes.models import ModelStore  # noqa: PLC0415

    return ModelStore(state_dir(None, os.environ) / "models").pull("smollm2-135m-instruct").path


@pytest.fixture(scope="session")
def embedding_model() -> Path:
    """The folder of the embedding model's `model.onnx` and `tokenizer.json`: $APPLIANCE_TEST_EMBEDDING_MODEL, else the
    model store's, fetched when missing."""
    given = os.environ.get("APPLIANCE_TEST_EMBEDDING_MODEL")
    if given:
        return Path(given)
    from appliance.settings import state_dir  # noqa: PLC0415 - only where no folder is given
    from runtimes.models import ModelStore  # noqa: PLC0415

    return ModelStore(state_dir(None, os.environ) / "models").pull("all-minilm-l6-v2").path.parent
