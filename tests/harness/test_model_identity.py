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
from lm_eval_leakage.harness.models.model_identity import as_loaded, identity_of, named_identity, refuse_replaced
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
    monkeypatch.setattr("lm_eval_leakage.digests.SETTLED", -1.0)


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


OF_A_MODEL = (
    *("config.json", "tokenizer.json", "chat_template.jinja", "modeling.py", "merges.txt", "qwen.tiktoken"),
    *("vocab.bpe", "source.spm", "vocab", "tokenizer/vocab", "draft/model.safetensors", "a/b/c/adapter_model.bin"),
)
OF_TRAINING = (
    *("README.md", "LICENSE", ".gitattributes", ".cache/huggingface/download/model.metadata", "optimizer.pt"),
    *("checkpoint-500/model.safetensors", "global_step500/zero.pt", "rng_state_0.pth", "trainer_state.json"),
    *("training_args.bin", "scheduler.pt", "runs/Nov28/events.out.tfevents.1", "train.log", "optimizer_0/x.distcp"),
)
OF_EVALUATIONS = (
    *("evals/m/results_2026-11-28T05-10-11.json", "evals/m/samples_quiz_2026-11-28T05-10-11.jsonl"),
    *("evals/leakage_answers/host-1.sqlite", "leakage/verdicts.json"),
)


@pytest.mark.parametrize(
    ("name", "belongs"),
    [*((name, True) for name in OF_A_MODEL), *((name, False) for name in (*OF_TRAINING, *OF_EVALUATIONS))],
)
def test_everything_below_a_folder_belongs_to_the_model_but_what_training_and_evaluations_leave(
    folder: Path, name: str, belongs: bool
) -> None:
    before = identity(folder)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    for text in ("one", "another"):
        (folder / name).write_text(text)
        again = identity(folder)
        assert (again != before) == belongs
        before = again


def test_a_folder_that_a_check_writes_below_the_model_does_not_belong_to_it(folder: Path) -> None:
    before = identity(folder)
    (folder / "audit" / "runs").mkdir(parents=True)
    for name in ("plan.yaml", "manifest.json", "verdicts.json", "runs/more.json"):
        (folder / "audit" / name).write_text("{}")
    assert identity(folder) == before


def test_folders_that_link_to_each_other_are_read_once(folder: Path) -> None:
    before = identity(folder)
    (folder / "again").symlink_to(folder)
    assert identity(folder) == before
    (folder / "link").symlink_to(folder.parent / "missing")
    assert identity(folder) == before


def test_weights_in_the_subfolder_that_is_named_belong_to_the_model_and_those_in_others_do_not(folder: Path) -> None:
    for name in ("checkpoint-1000", "step-2000"):
        (folder / name).mkdir()
        (folder / name / "model.safetensors").write_bytes(b"1")
    for name, other in (("checkpoint-1000", "step-2000"), ("step-2000", "checkpoint-1000")):
        before = identity(folder, subfolder=name)
        (folder / other / "model.safetensors").write_bytes(name.encode())
        assert identity(folder, subfolder=name) == before
        (folder / name / "model.safetensors").write_bytes(b"2")
        assert identity(folder, subfolder=name) != before


@pytest.mark.parametrize("argument", ["pretrained", "peft", "delta", "tokenizer", "gguf_file", "lora_local_path"])
@pytest.mark.parametrize("spelled", ["m", "./m", "m/", "../here/m", "absolute", "link", "a copy", "a `Path`"])
def test_the_same_content_under_another_path_is_the_same_model(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argument: str, spelled: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    folder.rename(here / "m")
    (here / "link").symlink_to(here / "m")
    shutil.copytree(here / "m", here / "copy")
    (here / "copy" / "README.md").write_text("A copy.")
    paths = {"absolute": str(here / "m"), "a copy": "copy", "a `Path`": Path("m")}

    def of(path: Any) -> dict[str, str]:
        return named_identity(Evaluation(None, model="hf", model_args={"pretrained": "gpt2", argument: path}))

    assert of(paths.get(spelled, spelled)) == of("m")
    before = of("m")
    (here / "copy" / "model.safetensors").write_bytes(b"1")
    assert of("copy") != before


def test_a_file_counts_by_its_content_whatever_it_is_called(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"1" * 9)
    (folder / "b.gguf").write_bytes(b"1" * 9)
    assert identity(folder, gguf_file=str(tmp_path / "a.gguf")) == identity(folder, gguf_file="b.gguf")


def test_what_a_server_calls_its_model_counts_beside_its_files(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")

    def of(name: Path) -> dict[str, str]:
        return named_identity(Evaluation(None, model="local-completions", model_args={"model": str(name)}))

    assert of(folder) != of(tmp_path / "copy")


def test_code_of_the_model_counts_where_there_is_any(folder: Path, tmp_path: Path) -> None:
    assert identity(folder, trust_remote_code=True) == identity(folder)
    for file in ("config.json", "tokenizer_config.json"):
        (folder / file).write_text('{"auto_map": {"AutoModel": "modeling.Mine"}}')
        assert identity(folder, trust_remote_code=True) != identity(folder)
        assert identity(folder, trust_remote_code=False) == identity(folder)
        (folder / file).unlink()
    code = tmp_path / "code"
    code.mkdir()
    (folder / "config.json").write_text(f'{{"auto_map": {{"AutoModel": "{code}--modeling.Mine"}}}}')
    (code / "modeling.py").write_text("x = 1")
    before = identity(folder, trust_remote_code=True)
    (code / "modeling.py").write_text("x = 2")
    assert identity(folder, trust_remote_code=True) != before


def test_the_model_below_an_adapter_counts(folder: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(f'{{"base_model_name_or_path": "{folder}"}}')
    before = identity(adapter)
    changed(folder / "model.safetensors", 5)
    assert identity(adapter) != before


def test_a_slow_tokenizer_counts(folder: Path) -> None:
    assert identity(folder, use_fast_tokenizer=True) == identity(folder) != identity(folder, use_fast_tokenizer=False)


@pytest.mark.parametrize("argument", ["peft", "tokenizer", "gguf_file"])
def test_other_arguments_that_name_files_are_read_too(folder: Path, tmp_path: Path, argument: str) -> None:
    other = tmp_path / "adapter"
    other.mkdir()
    (other / "adapter_model.safetensors").write_bytes(b"1")
    before = identity(folder, **{argument: str(other)})
    (other / "adapter_model.safetensors").write_bytes(b"2")
    assert identity(folder, **{argument: str(other)}) != before


def test_a_folder_that_a_backend_writes_to_does_not_belong_to_the_model(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    before = identity(folder, scratch=str(tmp_path / "scratch"), download_dir=str(tmp_path / "scratch"))
    (tmp_path / "scratch" / "model.safetensors").write_bytes(b"1")
    assert identity(folder, scratch=str(tmp_path / "scratch"), download_dir=str(tmp_path)) == before


# ---------------------------------------------------------------------- what is remembered


def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The weights files that are opened from now on."""
    files: list[Path] = []
    original = Path.open

    def noted(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self.suffix == ".safetensors":
            files.append(self)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", noted)
    return files


def test_a_file_is_read_once_unless_it_was_just_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, request
) -> None:
    file, files = folder / "model.safetensors", opened(monkeypatch)
    assert identity(folder) == identity(folder)
    assert len(files) == 2
    request.getfixturevalue("later")
    os.utime(file, (1.0, file.stat().st_mtime))  # reading it changes its access time
    assert identity(folder) == identity(folder)
    assert len(files) == 3


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


def test_a_model_in_memory_has_the_files_of_before_and_the_commit_of_now() -> None:
    named = {"backend": "hf", "pretrained": "some/model", "peft": f"files ({'0' * 16})"}
    now = {**named, "pretrained": f"some/model ({'a' * 40})", "peft": f"files ({'4' * 16})"}
    assert as_loaded(named, now) == {**now, "peft": named["peft"]}
    assert as_loaded({}, now) == now


def test_a_model_whose_files_are_replaced_while_it_is_loaded_is_refused_by_name(folder: Path) -> None:
    arguments = {"pretrained": str(folder)}
    before = identity(folder)
    refuse_replaced(before, identity(folder), arguments)
    changed(folder / "model.safetensors", 5)
    with pytest.raises(ValueError, match=f"pretrained is '{folder}', whose files changed while .* start the same"):
        refuse_replaced(before, identity(folder), arguments)
    shutil.rmtree(folder)
    with pytest.raises(ValueError, match="pretrained is"):
        refuse_replaced(before, identity(folder), f"pretrained={folder}")


def test_a_model_of_the_hub_is_identified_by_the_commit_of_its_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    cached(tmp_path / "hub", "some/model", "a" * 40, "config.json")
    cached(tmp_path / "hub", "some/model", "b" * 40, "config.json", "v2")
    files = [
        named_identity(Evaluation(None, model="hf", model_args={"pretrained": "some/model", **more}))["pretrained"]
        for more in ({}, {"revision": "main"}, {"revision": "v2"}, {"revision": "v3"})
    ]
    assert files == [f"some/model ({commit * 40})" for commit in "aab"] + ["some/model"]
    cached(tmp_path / "hub", "some/adapter", "c" * 40, "adapter_config.json")
    cached(tmp_path / "hub", "some/adapter", "d" * 40, "adapter_config.json", "v2")
    arguments = {
        "pretrained": "m",
        "revision": "v2",
        "peft": "some/adapter",
    }  # which lm_eval loads by the revision, too
    assert named_identity(Evaluation(None, model="hf", model_args=arguments))["peft"] == f"some/adapter ({'d' * 40})"
