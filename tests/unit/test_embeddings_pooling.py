"""From a vector a token to a vector a text, and who computes it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from runtimes.embeddings.model import pooled, providers


def test_a_text_is_the_direction_of_the_mean_of_its_tokens() -> None:
    hidden = np.array([[[1, 0], [0, 1], [9, 9]], [[3, 4], [9, 9], [9, 9]]], np.float32)
    mask = np.array([[1, 1, 0], [1, 0, 0]], np.int64)
    vectors = pooled(hidden, mask)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, [[0.5**0.5, 0.5**0.5], [0.6, 0.8]], rtol=1e-6)


def test_padding_changes_nothing() -> None:
    hidden = np.random.default_rng(1).normal(size=(3, 5, 8)).astype(np.float32)
    mask = np.ones((3, 5), np.int64)
    padded = np.concatenate([hidden, np.full((3, 4, 8), 1e6, np.float32)], axis=1)
    wider = np.concatenate([mask, np.zeros((3, 4), np.int64)], axis=1)
    np.testing.assert_array_equal(pooled(padded, wider), pooled(hidden, mask))


@pytest.mark.parametrize(
    ("available", "chosen"),
    [
        (["AzureExecutionProvider", "CPUExecutionProvider"], ["CPU"]),
        (["CPUExecutionProvider", "CUDAExecutionProvider"], ["CUDA", "CPU"]),
        (
            ["CPUExecutionProvider", "TensorrtExecutionProvider", "CUDAExecutionProvider"],
            ["Tensorrt", "CUDA", "CPU"],
        ),
    ],
)
def test_the_best_that_is_there_computes(available: list[str], chosen: list[str]) -> None:
    assert [name.removesuffix("ExecutionProvider") for name, _ in providers(available)] == chosen


def test_tensorrt_is_told_of_every_shape_that_comes() -> None:
    options = dict(providers(["TensorrtExecutionProvider"]))["TensorrtExecutionProvider"]
    assert options["trt_profile_max_shapes"] == "attention_mask:16x256,input_ids:16x256,token_type_ids:16x256"


@pytest.mark.parametrize(
    ("module", "loaded"), [("runtimes.embeddings.supervisor", False), ("runtimes.embeddings.worker", True)]
)
def test_native_code_is_loaded_on_the_workers_side_only(module: str, loaded: bool, tmp_path: Path) -> None:  # noqa: FBT001 - pytest passes it
    code = f"import {module}, sys; print({{'onnxruntime', 'tokenizers'}} <= set(sys.modules))"
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    said = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.strip() == str(loaded)
    assert list(tmp_path.iterdir()) == []  # ONNX Runtime's telemetry would have left its device's identity
