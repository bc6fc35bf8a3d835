"""Imported where lm_eval discovers plugins: makes audits of any task, by name, available to it.

lm_eval resolves each entry point of the group `lm_eval.tasks` to a folder of YAMLs, and imports the packages above it,
which for `audits` is this one. The folder of our YAMLs is an entry point of its own.
"""

from lm_eval.tasks.manager import TaskManager

from lm_eval_leakage.harness import extend_harness

extend_harness(TaskManager)
