"""A simulation end to end, from a file of questions to the report, on a model of a few thousand weights."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lm_eval_leakage.lab.detection import read_lines
from lm_eval_leakage.lab.outcome_report import qualities
from lm_eval_leakage.lab.settings import PROTOCOLS, Simulation
from lm_eval_leakage.lab.simulation import simulate, with_checkpoint
from lm_eval_leakage.lab.training import Recipe
from tests.harness.test_prefix_tree_lm import checkpoint

pytestmark = [
    pytest.mark.model,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return checkpoint(tmp_path_factory.mktemp("tiny"), hidden_size=32, intermediate_size=64)


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("benchmark") / "questions.jsonl"
    words = ["red", "blue", "lime", "grey", "teal", "pink", "gold", "rust", "jade", "plum"]
    docs = [
        {"question": f"{a} {b}?", "choices": [b[::-1], a[::-1], a + b, b + a], "answer": i % 4, "subject": "colours"}
        for i, (a, b) in enumerate(zip(words * 2, words[3:] + words[5:] + words, strict=False))
    ]
    file.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    return str(file)


def settings(tiny: str, benchmark: str, **changes: object) -> Simulation:
    common = Simulation(
        model_args=f"pretrained={tiny},dtype=float32",
        benchmark=benchmark,
        n_questions=12,
        epochs=(2, 30),
        detectors=("leakage_tokens", "leakage_perm"),
        block=3,
        recipe=Recipe(learning_rate=5e-3, batch_size=6),
        metadata={"permutations": 5},
    )
    return replace(common, **changes)


def with_reference(tiny: str, benchmark: str, **changes: object) -> Simulation:
    """Return settings in which the untrained model is the reference."""
    arguments = f"pretrained={tiny},dtype=float32,max_length=2048"  # letters are tokens here
    detectors = ("leakage_tokens", "leakage_perm", "leakage_shared_likelihood", "leakage_relative")
    given = {"model_args": arguments, "reference": arguments, "detectors": detectors}
    return settings(tiny, benchmark, **(given | changes))


@pytest.fixture(scope="module")
def done(tiny: str, benchmark: str, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("lab")
    return folder, simulate(with_reference(tiny, benchmark), folder)


def quality_of(outcome, detector: str, exposures: int):
    (quality,) = [q for q in qualities(outcome) if (q.detector, q.exposures) == (detector, exposures)]
    return quality


def test_trained_questions_rank_above_held_out_ones(done) -> None:
    folder, outcome = done
    assert not (folder / "model" / "state").exists()  # what a training resumes from
    assert quality_of(outcome, "token_evidence/mean_loglikelihood", 30).auroc.value > 0.9
    assert quality_of(outcome, "token_evidence/mean_loglikelihood", 0).auroc.value < 0.9


def test_the_test_of_question_order_counts_shards_and_the_others_questions(done) -> None:
    _, outcome = done
    shards = quality_of(outcome, "shared_likelihood:examples=3,permutations=5", 2)
    assert (shards.n_trained, shards.n_held_out) == (2, 2)
    assert (quality_of(outcome, "max_order", 2).n_trained, len(outcome.trained)) == (6, 6)


def test_the_same_folder_is_reused_only_what_is_missing_is_run_and_other_settings_are_refused(
    done, tiny: str, benchmark: str, monkeypatch
) -> None:
    folder, outcome = done
    before = list(qualities(outcome))
    with monkeypatch.context() as patch:
        patch.setattr("lm_eval_leakage.harness.saved_run.run_saved", lambda *_: pytest.fail("an audit is run again"))
        assert list(qualities(simulate(with_reference(tiny, benchmark), folder))) == before
    lost = folder / "audits_2" / "leakage_tokens"
    shutil.rmtree(lost)
    again = list(qualities(simulate(with_reference(tiny, benchmark), folder)))
    assert lost.exists()
    assert [q.auroc for q in again] == [q.auroc for q in before]
    more = ("leakage_relative", "leakage_perm_q")
    added = simulate(with_reference(tiny, benchmark, detectors=more, epochs=(2,)), folder)
    assert quality_of(added, "pair_direction", 2).n_trained == 6
    with pytest.raises(ValueError, match="has a simulation with seed = 0, not 1; give another output folder"):
        simulate(with_reference(tiny, benchmark, seed=1), folder)


def test_a_killed_training_resumes_from_its_last_epoch(tiny: str, benchmark: str, tmp_path: Path) -> None:
    from transformers import Trainer

    whole = settings(tiny, benchmark, epochs=(1, 4), detectors=("leakage_tokens",))
    expected = simulate(whole, tmp_path / "whole").audits[4].lines("leakage_tokens")

    class KilledError(Exception):
        pass

    original, steps = Trainer.training_step, []

    def killed(self, *args, **kwargs):
        steps.append(self.state.global_step)
        if self.state.global_step == 2:
            raise KilledError
        return original(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "training_step", killed)
        with pytest.raises(KilledError):
            simulate(whole, tmp_path / "killed")
    with pytest.MonkeyPatch.context() as patch:
        steps.clear()
        patch.setattr(
            Trainer,
            "training_step",
            lambda self, *a, **k: (steps.append(self.state.global_step), original(self, *a, **k))[1],
        )
        again = simulate(whole, tmp_path / "killed").audits[4].lines("leakage_tokens")
    assert steps == [2, 3]
    assert [line.values["mean_loglikelihood"] for line in again] == pytest.approx(
        [line.values["mean_loglikelihood"] for line in expected], abs=1e-4
    )


def test_running_out_of_memory_is_reported_with_the_remedy(
    tiny: str, benchmark: str, tmp_path: Path, monkeypatch
) -> None:
    import torch
    from transformers import Trainer

    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("device is full")

    monkeypatch.setattr(Trainer, "training_step", full)
    with pytest.raises(ValueError, match="ran out of memory with batch_size 6 and lora_rank None; lower the first"):
        simulate(settings(tiny, benchmark), tmp_path)


def test_a_reference_is_subtracted_where_an_audit_uses_it(done, tiny: str) -> None:
    _, outcome = done
    over_reference = f"relative_likelihood:reference={tiny}/over_reference"
    # the untrained model is its own reference, so the difference is only rounding
    (untrained,) = [detector for detector in outcome.detectors[0] if detector.name == over_reference]
    assert max(map(abs, untrained.scores.values())) < 1e-4
    assert quality_of(outcome, over_reference, 30).auroc.value > 0.9
    lines = {suffix: outcome.audits[30].lines(suffix) for suffix in ("leakage_relative", "leakage_perm")}
    assert all(line.detector.endswith(f":reference={tiny}") for line in lines["leakage_relative"])
    assert not any("reference" in line.detector for line in lines["leakage_perm"])


def test_lora_trains_an_adapter_that_the_audits_load(tiny: str, benchmark: str, tmp_path: Path) -> None:
    recipe = replace(PROTOCOLS["hidayat"]["recipe"], lora_rank=4, learning_rate=2e-2)
    lora = settings(tiny, benchmark, recipe=recipe, epochs=(30,), detectors=("leakage_tokens",))
    outcome = simulate(lora, tmp_path)
    assert (tmp_path / "model" / "epoch_30" / "adapter_config.json").exists()
    assert with_checkpoint(lora, Path("A")).endswith(",peft=A")
    before, after = (quality_of(outcome, "token_evidence/mean_loglikelihood", e).auroc.value for e in (0, 30))
    assert after > before


def test_hard_questions_are_answered_incorrectly_and_less_likely_than_the_mean(
    tiny: str, benchmark: str, tmp_path: Path
) -> None:
    hard = settings(tiny, benchmark, select="hard", n_questions=4, epochs=(1,), block=1, detectors=("leakage_tokens",))
    outcome = simulate(hard, tmp_path)
    values = {
        name: {line.question: line.values for line in read_lines(tmp_path / "candidates" / name)}
        for name in ("leakage_semihalf", "leakage_tokens")
    }
    wrong = [name for name, numbers in values["leakage_semihalf"].items() if not numbers["whole"]]
    mean = sum(values["leakage_tokens"][name]["mean_loglikelihood"] for name in wrong) / len(wrong)
    for name in (*outcome.trained, *outcome.held_out):
        assert name in wrong
        assert values["leakage_tokens"][name]["mean_loglikelihood"] < mean
