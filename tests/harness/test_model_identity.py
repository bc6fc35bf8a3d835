"""What a model is identified by: everything that its answers depend on, and nothing else."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.harness.models.asking import kept_answers
from lm_eval_leakage.harness.models.model_identity import as_loaded, identity_of, named_identity
from lm_eval_leakage.harness.seams.evaluation import Evaluation

N_BYTES = 200_000  # of the weights


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever the files were written, what is known of them is remembered."""
    monkeypatch.setattr("lm_eval_leakage.harness.models.model_identity.SETTLED", -1.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "model"
    place.mkdir()
    (place / "config.json").write_text("{}")
    (place / "model.safetensors").write_bytes(random.Random(0).randbytes(N_BYTES))
    return place


def identity(folder: Path, **more: Any) -> dict[str, str]:
    return named_identity(Evaluation(None, model="hf", model_args={"pretrained": str(folder), **more}))


def changed(file: Path, at: int) -> None:
    """One bit of one byte."""
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(bytes(content))


# ---------------------------------------------------------------------- files


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("at", [0, N_BYTES - 1, *random.Random(1).sample(range(N_BYTES), 20)])
def test_a_change_of_one_bit_anywhere_in_the_weights_is_another_model(folder: Path, at: int) -> None:
    before = identity(folder)
    changed(folder / "model.safetensors", at)
    assert identity(folder) != before


@pytest.mark.parametrize(
    ("name", "belongs"),
    [(name, True) for name in ("config.json", "tokenizer.json", "chat_template.jinja", "modeling.py", "merges.txt")]
    + [("README.md", False)],
)
def test_configuration_tokenizer_template_and_code_belong_to_the_model(folder: Path, name: str, belongs: bool) -> None:
    before = identity(folder)
    (folder / name).write_text("another")
    assert (identity(folder) != before) == belongs


def test_weights_in_the_subfolder_that_is_named_belong_to_the_model(folder: Path) -> None:
    inner = folder / "step-1000"
    inner.mkdir()
    (inner / "model.safetensors").write_bytes(b"1")
    before, without = identity(folder, subfolder="step-1000"), identity(folder)
    (inner / "model.safetensors").write_bytes(b"2")
    assert identity(folder, subfolder="step-1000") != before
    assert identity(folder) == without


@pytest.mark.parametrize("argument", ["peft", "tokenizer", "gguf_file"])
def test_other_arguments_that_name_files_are_read_too(folder: Path, tmp_path: Path, argument: str) -> None:
    other = tmp_path / "adapter"
    other.mkdir()
    (other / "adapter_model.safetensors").write_bytes(b"1")
    before = identity(folder, **{argument: str(other)})
    (other / "adapter_model.safetensors").write_bytes(b"2")
    assert identity(folder, **{argument: str(other)}) != before


# ---------------------------------------------------------------------- what is remembered


def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The weights files that are opened from now on."""
    found: list[Path] = []
    original = Path.open

    def noted(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self.suffix == ".safetensors":
            found.append(self)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", noted)
    return found


def test_a_file_is_read_once_unless_it_was_just_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, request
) -> None:
    file, found = folder / "model.safetensors", opened(monkeypatch)
    assert identity(folder) == identity(folder)
    assert len(found) == 2
    request.getfixturevalue("later")
    os.utime(file, (1.0, file.stat().st_mtime))  # reading it changes its access time
    assert identity(folder) == identity(folder)
    assert len(found) == 3


@pytest.mark.usefixtures("later")
def test_an_edit_that_keeps_size_and_time_is_noticed(folder: Path) -> None:
    file = folder / "model.safetensors"
    before, was = identity(folder), file.stat()
    changed(file, N_BYTES // 3)
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
    while file.stat().st_ctime_ns == was.st_ctime_ns:  # a coarse clock of the file system
        os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert identity(folder) != before


@pytest.mark.usefixtures("later")
def test_another_file_of_the_same_size_and_time_under_the_name_is_noticed(folder: Path) -> None:
    file, other = folder / "model.safetensors", folder / "other"
    before, was = identity(folder), file.stat()
    other.write_bytes(bytes(N_BYTES))
    os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
    other.replace(file)
    assert identity(folder) != before


def damaged(cache: Path) -> None:
    for file in cache.rglob("*"):
        if file.is_file():
            file.write_bytes(b"\xff")


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("spoil", [damaged, lambda cache: shutil.rmtree(cache) or cache.write_text("a file")])
def test_without_a_usable_memory_files_are_read_again(folder: Path, cache: Path, spoil) -> None:
    first = identity(folder)
    spoil(cache)
    assert identity(folder) == first
    changed(folder / "model.safetensors", 5)
    assert identity(folder) != first


# ---------------------------------------------------------------------- how it is asked, and names on the hub


@pytest.mark.parametrize(
    "asked_with",
    [{"apply_chat_template": True}, {"apply_chat_template": "tool_use"}, {"system_instruction": "Be brief"}],
)
def test_answers_to_another_template_or_system_instruction_are_kept_apart(
    folder: Path, asked_with: dict[str, Any]
) -> None:
    evaluation = Evaluation(None, model="hf", model_args={"pretrained": str(folder)})
    assert identity_of(evaluation) != identity_of(replace(evaluation, asked_with=asked_with))


def cached(hub: Path, name: str, commit: str, file: str, ref: str = "main") -> None:
    place = hub / f"models--{name.replace('/', '--')}"
    (place / "snapshots" / commit).mkdir(parents=True)
    (place / "snapshots" / commit / file).write_text("{}")
    (place / "refs").mkdir(exist_ok=True)
    (place / "refs" / ref).write_text(commit)


def test_answers_of_a_model_in_memory_are_kept_apart_from_those_of_files_changed_since(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lm_eval_leakage.harness.models.asking.on_next_results", lambda change: None)
    evaluation = Evaluation(None, model="hf", model_args={"pretrained": str(folder)}, output_path=tmp_path / "out")

    def kept_for(evaluation: Evaluation) -> dict[str, str]:
        with kept_answers(object(), True, evaluation) as store:
            assert store is not None
            return store.identity

    before, in_memory = kept_for(evaluation), replace(evaluation, identity=identity(folder))
    changed(folder / "model.safetensors", 5)
    assert kept_for(in_memory) == before
    assert kept_for(evaluation) != before


def test_a_model_in_memory_has_the_files_of_before_and_the_commit_of_now(folder: Path) -> None:
    named = {"backend": "hf", "pretrained": "some/model", "peft": f"{folder} (0123)"}
    now = {**named, "pretrained": "some/model (abc)", "peft": f"{folder} (4567)"}
    assert as_loaded(named, now) == {**named, "pretrained": "some/model (abc)"}
    assert as_loaded({}, now) == now


def test_a_model_of_the_hub_is_identified_by_the_commit_of_its_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    cached(tmp_path / "hub", "some/model", "a" * 40, "config.json")
    cached(tmp_path / "hub", "some/model", "b" * 40, "config.json", "v2")
    found = [
        named_identity(Evaluation(None, model="hf", model_args={"pretrained": "some/model", **more}))["pretrained"]
        for more in ({}, {"revision": "main"}, {"revision": "v2"}, {"revision": "v3"})
    ]
    assert found == [f"some/model ({commit * 40})" for commit in "aab"] + ["some/model"]
    cached(tmp_path / "hub", "some/adapter", "c" * 40, "adapter_config.json")
    arguments = {"pretrained": "m", "revision": "v2", "peft": "some/adapter"}  # the revision is not the adapter's
    assert named_identity(Evaluation(None, model="hf", model_args=arguments))["peft"] == f"some/adapter ({'c' * 40})"
