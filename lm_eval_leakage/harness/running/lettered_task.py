"""The YAML of a task whose prompt is that of MMLU: the question, its lettered options, `Answer:`; needs only lm_eval.

Rows have the fields question, choices and answer, the index of the right option.
"""

from __future__ import annotations

import re
from pathlib import Path
from string import ascii_uppercase

import lm_eval.tasks

from lm_eval_leakage.texts import as_yaml

INSTALLED_TASKS = Path(lm_eval.tasks.__file__).resolve().parent
TASK_YAML = """{comment}
task: {name}
{data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question.strip()}}}}{{% for choice in choices %}}\\n{{{{'{letters}'[loop.index0]}}}}. {{{{choice}}}}\
{{% endfor %}}\\nAnswer:"
doc_to_choice: "{{{{'{letters}'[:choices|length]|list}}}}"
doc_to_target: answer
num_fewshot: 0
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""


def lettered_yaml(name: str, data: str, comment: str) -> str:
    """The task's YAML; `data`: its lines that say where the split `test` is loaded from; `comment`: lines with #."""
    return TASK_YAML.format(name=as_yaml(name), data=data, comment=comment, letters=ascii_uppercase)


def name_from_file(file: Path) -> str:
    """The file's, marked as one's own where lm_eval has a task or group of that name."""
    name = re.sub(r"[^a-z0-9]+", "_", file.stem.lower()).strip("_") or "questions"
    return f"own_{name}" if is_installed(name) else name


def is_installed(name: str) -> bool:
    """Whether lm_eval has a folder or a YAML of this name among its tasks."""
    return (INSTALLED_TASKS / name).is_dir() or any(INSTALLED_TASKS.rglob(f"{name}.y*ml"))
