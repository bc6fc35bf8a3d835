"""One of the processes that hold one model, for test_prefix_tree_ranks: `torchrun shared_model.py MODEL FOLDER`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from torch import distributed

from lm_eval_leakage.harness.models import prefix_tree_lm
from lm_eval_leakage.scoring.scorers import TreeScorer
from tests.harness.test_prefix_tree_lm import asked

PAIRS = [(f"Question {n}: what is it that is asked here?\n", f"A. {option}") for n in range(6) for option in "xyz"]
BUDGET = 64


def main(model: str, folder: str) -> None:
    rank = int(os.environ["RANK"])
    # each process reads its own free memory
    prefix_tree_lm.default_max_tokens = lambda *_: BUDGET + 10 * rank
    lm = prefix_tree_lm.PrefixTreeLM(pretrained=model, dtype="float32", max_length=100, tp_plan="auto")
    told: dict[str, object] = {
        "agreed": lm.budget.max_tokens,
        "way": lm.choice.scorer.name if lm.choice.scorer else "hf",
    }
    advance, failed = TreeScorer._advance, []

    def runs_out_once(self, *args):
        if not failed:
            failed.append(True)
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return advance(self, *args)

    TreeScorer._advance = runs_out_once
    told["answers"] = lm.loglikelihood(asked(PAIRS), disable_tqdm=True)
    told["after"] = lm.budget.max_tokens
    own = PAIRS[:7] if rank else PAIRS[5:12]  # what each lacks in its own response cache
    told["own"] = dict(zip([str(pair) for pair in own], lm.loglikelihood(asked(own), disable_tqdm=True), strict=True))
    Path(folder, f"told_{rank}").write_text(json.dumps(told))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
