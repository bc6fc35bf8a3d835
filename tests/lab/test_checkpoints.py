from __future__ import annotations

from pathlib import Path

import pytest

from lm_eval_leakage.lab.training import complete_checkpoints, keep_checkpoint

FILES = ("model.safetensors", "optimizer.pt", "trainer_state.json")


def saved(state: Path, epoch: int, files: tuple[str, ...] = FILES) -> Path:
    """A checkpoint as the trainer writes it, in the order of FILES."""
    checkpoint = state / f"checkpoint-{10 * epoch}"
    checkpoint.mkdir(parents=True)
    for name in files:
        (checkpoint / name).write_text(f"{name} after {epoch}")
    return checkpoint


@pytest.mark.parametrize("n_files", range(len(FILES) + 1))
def test_after_a_kill_while_a_checkpoint_is_saved_the_previous_one_is_used(tmp_path: Path, n_files: int) -> None:
    keep_checkpoint(saved(tmp_path, 1), 1)
    incomplete = saved(tmp_path, 2, FILES[:n_files])
    assert complete_checkpoints(tmp_path) == {1: tmp_path / "epoch_1"}
    for name in FILES[n_files:]:
        (incomplete / name).touch()
    keep_checkpoint(incomplete, 2)
    assert [entry.name for entry in tmp_path.iterdir()] == ["epoch_2"]


def test_a_checkpoint_is_removed_only_when_the_next_is_complete(tmp_path: Path, monkeypatch) -> None:
    keep_checkpoint(saved(tmp_path, 1), 1)
    second = saved(tmp_path, 2)
    with monkeypatch.context() as patch:
        patch.setattr("lm_eval_leakage.files.to_disk", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            keep_checkpoint(second, 2)
    assert complete_checkpoints(tmp_path) == {1: tmp_path / "epoch_1"}
    keep_checkpoint(second, 2)
    assert complete_checkpoints(tmp_path) == {2: tmp_path / "epoch_2"}
