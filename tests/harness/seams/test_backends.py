"""Which models are lm_eval's `hf`, without importing its class where no such model can exist."""

from __future__ import annotations

import subprocess
import sys

from lm_eval.api.model import CachingLM
from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.harness.models.prefix_tree_lm import PrefixTreeLM
from lm_eval_leakage.harness.seams.backends import is_hf
from tests.fakes import FakeLM, by_hash

WITHOUT_A_MODEL = """
import sys
from lm_eval.models.dummy import DummyLM
from lm_eval_leakage.harness.seams.backends import is_hf
print(is_hf(DummyLM()), is_hf(None), "lm_eval.models.huggingface" in sys.modules, "torch" in sys.modules)
"""


def test_hf_and_classes_derived_from_it_are_hf_and_no_others(tmp_path) -> None:
    derived = type("Derived", (PrefixTreeLM,), {})
    assert all(is_hf(kind.__new__(kind)) for kind in (HFLM, PrefixTreeLM, derived))
    same_name = type("HFLM", (FakeLM,), {"__module__": "lm_eval.models.huggingface"})
    others = [FakeLM(by_hash), same_name(by_hash), HFLM, None]
    assert not any(map(is_hf, others))
    wrapped = CachingLM(FakeLM(by_hash), str(tmp_path / "cache"))
    assert not is_hf(wrapped)


def test_the_class_of_hf_is_not_imported_to_know_that_a_model_is_another_one() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT_A_MODEL], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False", "False", "False"]
