from __future__ import annotations

import pytest
from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness import extend_harness

extend_harness(TaskManager)


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny model."""
    from tests.harness.test_prefix_tree_lm import checkpoint

    return checkpoint(tmp_path_factory.mktemp("llama"))
