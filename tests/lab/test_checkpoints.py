from __future__ import annotations

import logging
from pathlib import Path

import pytest

from lm_eval_leakage.lab.training import LIST, newest_whole, remove_used, seal

FILES = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")


def saved(state: Path, epoch: int, files: tuple[str, ...] = FILES) -> Path:
    """A checkpoint as the trainer writes it, in the order of FILES."""
    checkpoint = state / f"checkpoint-{10 * epoch}"
    checkpoint.mkdir(parents=True)
    for name in files:
        (checkpoint / name).write_text(f"{name} after {epoch}")
    return checkpoint


def after_a_kill(state: Path, n_files: int) -> Path:
    """Epoch 1 is complete, epoch 2 has only its first `n_files` files."""
    seal(first := saved(state, 1), 1)
    saved(state, 2, FILES[:n_files])
    return first


@pytest.mark.parametrize("n_files", range(len(FILES) + 1))
def test_a_checkpoint_whose_saving_was_killed_is_renamed_and_the_previous_one_used(
    tmp_path: Path, n_files, caplog
) -> None:
    caplog.set_level(logging.INFO)
    first = after_a_kill(tmp_path, n_files)
    assert newest_whole(tmp_path, before=3) == first
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["broken-checkpoint-20", "checkpoint-10"]
    assert "checkpoint-20 was not saved completely; it is renamed to broken-checkpoint-20" in caplog.text
    assert f"resumes after epoch 1, from {first}" in caplog.text
    assert newest_whole(tmp_path, before=3) == first


@pytest.mark.parametrize("name", [*FILES, LIST])
@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(b"")])
def test_a_checkpoint_with_a_missing_or_damaged_file_is_renamed(tmp_path: Path, name: str, damage) -> None:
    seal(checkpoint := saved(tmp_path, 1), 1)
    damage(checkpoint / name)
    assert newest_whole(tmp_path, before=3) is None
    assert [entry.name for entry in tmp_path.iterdir()] == ["broken-checkpoint-10"]


def test_a_checkpoint_is_removed_only_when_the_next_is_complete(tmp_path: Path, monkeypatch) -> None:
    first = after_a_kill(tmp_path, len(FILES))
    with monkeypatch.context() as patch:
        patch.setattr("lm_eval_leakage.lab.training.atomic_write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            seal(tmp_path / "checkpoint-20", 2)
    assert (first / FILES[0]).exists()
    seal(tmp_path / "checkpoint-20", 2)
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint-20"]
    assert newest_whole(tmp_path, before=3) == tmp_path / "checkpoint-20"


def test_a_checkpoint_after_the_requested_epoch_is_not_used(tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO)
    seal(saved(tmp_path, 2), 2)
    assert newest_whole(tmp_path, before=2) is None
    assert not caplog.text


@pytest.mark.parametrize(("up_to", "stays"), [(1, True), (2, False), (3, False)])
def test_checkpoints_are_removed_when_their_training_is_done(tmp_path: Path, up_to: int, stays: bool) -> None:
    seal(saved(tmp_path / "state", 2), 2)
    saved(tmp_path / "state", 3, FILES[:2])
    remove_used(tmp_path / "state", up_to)
    assert [entry.name for entry in tmp_path.iterdir()] == (["state"] if stays else [])


def test_no_checkpoint_is_no_error(tmp_path: Path) -> None:
    assert newest_whole(tmp_path / "state", before=1) is None
