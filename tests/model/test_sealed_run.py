"""A benchmark sealed, audited and judged by the real command line, with a real small model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lm_eval_leakage.harness.sealing import sealing_of, write_sealing
from tests.cli.conftest import typed  # noqa: F401 (a fixture)
from tests.model.test_sharded_run import done

pytestmark = pytest.mark.model
N = 20


def rows() -> list[dict]:
    """Short ones: few tokens."""
    options = [[f"{kind} {i}" for kind in ("oak", "elm", "fir")] for i in range(N)]
    return [
        {"question": f"Tree {i}?", "choices": own, "answer": 0, "wordings": [f"Kind {i}?", f"Which {i}?"]}
        for i, own in enumerate(options)
    ]


@pytest.fixture(scope="module")
def place(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sealed_run")
    (folder / "trees.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    write_sealing(sealing_of(str(folder / "trees.jsonl"), None, "keep", None), folder / "sealed")
    options = ["--model", "hf-prefix-tree", "--model_args", f"pretrained={model},dtype=float32", "--device", "cpu"]
    options += ["--include_path", str(folder / "sealed" / "public"), "--tasks", "trees_leakage_seal"]
    options += ["--metadata", f"seal={folder / 'sealed' / 'private'}", "--log_samples"]
    done("run", *options, "--output_path", str(folder / "runs"))
    return folder


def test_a_model_that_cannot_have_seen_a_new_seal_is_not_claimed_to_have(place: Path, typed) -> None:  # noqa: F811
    private, file = place / "sealed" / "private", place / "verdict.json"
    _, printed, _ = typed("seal", "audit", place / "runs", "--seal", private, "--output_path", file)
    (found,) = json.loads(file.read_text())["models"]
    assert found["word"] != "strong evidence"  # the key is new in every run: one of 20,000 would fail
    assert [(test["name"], test["n"]) for test in found["tests"]] == [
        ("wordings", N),
        ("option orders", N),
        ("question order", N // 4),
    ]
    assert found["look"]["level"] == pytest.approx(0.005)
    assert found["sentence"] in printed
