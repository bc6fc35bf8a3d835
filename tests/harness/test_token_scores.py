from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.detectors.membership import TokenEvidence
from lm_eval_leakage.harness.models import token_scores
from lm_eval_leakage.harness.models.abilities import lacking
from lm_eval_leakage.harness.models.prefix_tree_lm import PrefixTreeLM
from lm_eval_leakage.harness.models.token_scores import offer_token_scores
from lm_eval_leakage.records import TokenScores
from lm_eval_leakage.scoring import tree_model as two_parts
from lm_eval_leakage.scoring.pieces import UnsuitedModelError
from tests.fakes import FakeLM, by_hash
from tests.harness.test_task import evaluate

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
TEXTS = ["The sky is blue", "Öl", "x", "A much longer text than all of the others, with no end in sight"]


def loaded(model: str, cls=HFLM, **options):
    lm = cls(pretrained=model, device="cpu", dtype="float32", max_length=100, **options)
    assert offer_token_scores(lm)
    return lm


def scored(lm, texts: list[str] = TEXTS) -> list[TokenScores]:
    requests = [Instance("token_scores", {}, (text,), index) for index, text in enumerate(texts)]
    answers: list[TokenScores] = lm.token_scores(requests)
    return answers


def test_every_token_is_scored_against_the_models_own_distribution(llama: str) -> None:
    lm = loaded(llama)
    for text, scores in zip(TEXTS, scored(lm), strict=True):
        ids = lm.tok_encode(text, add_special_tokens=False)
        logits = lm.model(torch.tensor([[lm.prefix_token_id, *ids]])).logits[0, :-1].double()
        logs = torch.log_softmax(logits, dim=-1).detach().numpy()
        chances = np.exp(logs)
        mean = (chances * logs).sum(axis=1)
        assert scores.loglikelihoods == pytest.approx(logs[np.arange(len(ids)), ids], abs=1e-5)
        assert scores.means == pytest.approx(mean, abs=1e-5)
        assert scores.deviations == pytest.approx(np.sqrt((chances * logs**2).sum(axis=1) - mean**2), abs=1e-5)


def test_batches_change_no_score(llama: str) -> None:
    alone = scored(loaded(llama))
    others = [loaded(llama, batch_size=size) for size in (3, "auto", "auto:4")]
    for lm in (*others, loaded(llama, PrefixTreeLM), loaded(llama, PrefixTreeLM, batch_size="auto")):
        reported = []
        lm.cache_hook = SimpleNamespace(add_partial=lambda *arguments, to=reported: to.append(arguments))
        for score, other in zip(alone, scored(lm), strict=True):
            assert score.loglikelihoods == pytest.approx(other.loglikelihoods, abs=1e-5)
            assert score.means == pytest.approx(other.means, abs=1e-5)
        assert sorted(text for _, (text,), _ in reported) == sorted(TEXTS), "saved as they come"


@pytest.mark.parametrize("most", [1, 3])
def test_automatic_batches_are_halved_when_memory_runs_out(llama: str, most: int) -> None:
    sizes = []

    def little_memory(_, arguments):
        sizes.append(len(arguments[0]))
        if sizes[-1] > most:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    automatic, chosen = loaded(llama, batch_size="auto"), loaded(llama, batch_size=4)
    for lm in (automatic, chosen):
        lm.model.get_input_embeddings().register_forward_pre_hook(little_memory)
    scores = [pytest.approx(score.loglikelihoods, abs=1e-5) for score in scored(loaded(llama))]
    assert [score.loglikelihoods for score in scored(automatic)] == scores
    assert sizes == {1: [4, 2, 1, 1, 1, 1], 3: [4, 2, 2]}[most]
    with pytest.raises(torch.OutOfMemoryError):
        scored(chosen)  # a size that was chosen is kept


def test_the_head_is_given_no_more_tokens_at_once_than_memory_is_bounded_for(llama: str, monkeypatch) -> None:
    lm = loaded(llama, batch_size=4)
    alone, sizes = scored(lm), []
    monkeypatch.setattr(
        two_parts, "LOGITS_AT_ONCE", {"cpu": 7 * token_scores.N_TABLES * two_parts.vocabulary_size(lm.model)}
    )
    hook = lm.model.get_output_embeddings().register_forward_hook(lambda _, given, out: sizes.append(out.shape))
    scores = scored(lm)
    hook.remove()
    table = {tuple(shape[:2]) for shape in sizes}
    assert (1, 7) in table
    assert max(rows * length for rows, length in table) == 7
    for score, other in zip(alone, scores, strict=True):
        assert score.loglikelihoods == pytest.approx(other.loglikelihoods, abs=1e-5)
        assert score.deviations == pytest.approx(other.deviations, abs=1e-5)


def test_a_model_whose_head_cannot_be_separated_gives_the_whole_table(llama: str, monkeypatch) -> None:
    lm = loaded(llama)
    alone = scored(lm)

    def refused(_: object) -> None:
        raise UnsuitedModelError("its output head cannot be distinguished from its layers")

    monkeypatch.setattr(token_scores, "TwoParts", refused)
    assert scored(lm) == alone


def test_a_backend_without_distributions_is_named_with_those_that_have_them() -> None:
    reason = lacking(FakeLM(by_hash), "token_scores")
    assert reason == "FakeLM does not give the next-token distribution (`hf` and `hf-prefix-tree` do)"
    assert lacking(FakeLM(by_hash), "loglikelihood") is None


def test_a_share_of_no_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="k is 0; it must be above 0"):
        TokenEvidence(0)


def test_an_audit_by_token_scores_end_to_end(llama: str, tmp_path: Path) -> None:
    lm = HFLM(pretrained=llama, device="cpu", dtype="float32", max_length=1000)
    results = evaluate(lm, tasks=["fresh_leakage_tokens"], limit=3, use_cache=str(tmp_path / "cache"))
    row = results["results"]["fresh_leakage_tokens"]
    assert row["skipped,token_evidence"] == 0
    lines = results["samples"]["fresh_leakage_tokens"]
    assert row["mean_zscore,token_evidence"] == pytest.approx(np.mean([line["mean_zscore"] for line in lines]))
    assert row["mean_zscore_stderr,token_evidence"] > 0
    assert math.isfinite(row["min_k_zscore,token_evidence"])


class Chat(FakeLM):
    def loglikelihood(self, requests):
        raise NotImplementedError("chat models give no log-likelihoods")


def test_an_audit_that_the_model_cannot_run_gets_an_early_warning_and_the_others_run(caplog) -> None:
    with pytest.raises(ValueError, match="fresh_leakage_perm cannot run: Chat gives no log-likelihoods"):
        evaluate(Chat(by_hash), tasks=["fresh_leakage_perm"], limit=1)
    results = evaluate(FakeLM(by_hash), tasks=["fresh_leakage_perm", "fresh_leakage_tokens"], limit=1)
    assert results["results"]["fresh_leakage_tokens"]["skipped,token_evidence"] == 1
    (line,) = results["samples"]["fresh_leakage_tokens"]
    assert line["reason"].startswith("FakeLM does not give the next-token distribution")
    assert results["results"]["fresh_leakage_perm"]["skipped,max_order"] == 0
    assert "fresh_leakage_tokens cannot run: FakeLM does not give the next-token distribution" in caplog.text
