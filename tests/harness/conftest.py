from __future__ import annotations

from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness import extend_harness

extend_harness(TaskManager)
