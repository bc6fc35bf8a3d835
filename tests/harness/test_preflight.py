"""What cannot succeed is refused before the index of tasks, data and weights, by one check for all commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness.preflight import check_given_once, check_model, parsed_args, preflight
from lm_eval_leakage.jobs.driver import run_plan
from lm_eval_leakage.jobs.plan import check_plan

WORDS = "the options are words of the task, the same for every question: yes, no"
PERM = ("leakage_perm",)


@pytest.fixture(autouse=True)
def _no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskManager, "__init__", lambda *_, **__: pytest.fail("the index was built"))


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.yaml").write_text(
        "task: mine\noutput_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: ['yes', 'no']\n"
    )
    (tmp_path / "other.yaml").write_text("include: mine.yaml\ntask: arc_easy\ntag: [mine_all]\n")
    (tmp_path / "python.yaml").write_text("task: python\nclass: !function json.JSONEncoder\n")
    (tmp_path / "broken.yaml").write_text("task: broken\n  - [\n")
    return tmp_path


def test_tasks_whose_settings_no_audit_fits_are_refused_with_the_reason_that_ls_gives(mine: Path) -> None:
    for tasks, audits in ((("mine",), PERM), (("mine_leakage_perm",), ()), (("arc_easy_choice_confusion",), ())):
        with pytest.raises(ValueError, match=f"cannot be audited: {WORDS}; choose another benchmark"):
            preflight(tasks, audits=audits, include_path=mine)
    with pytest.raises(ValueError, match="python cannot be audited: it is written in Python"):
        preflight(["python"], audits=PERM, include_path=mine)


@pytest.mark.parametrize(
    "tasks", [("arc_easy",), ("mmlu",), ("mmlu_stem_tasks",), ("fresh",), ("mmlu_*",), ()], ids=str
)
def test_tasks_that_only_their_rows_could_tell_pass(tasks: tuple[str, ...]) -> None:
    preflight(tasks, audits=PERM)


def test_one_task_without_options_among_others_is_refused_unless_the_command_leaves_it_out(mine: Path) -> None:
    for tasks, audits in ((["piqa", "mine"], PERM), (["piqa_leakage_perm", "mine_leakage_perm"], ())):
        with pytest.raises(ValueError, match=r"mine cannot be audited: .*; leave it out, or choose another benchmark"):
            preflight(tasks, audits=audits, include_path=mine)
        preflight(tasks, audits=audits, include_path=mine, leaves_out=True)


def test_a_run_of_such_a_task_itself_and_a_broken_yaml_are_none_of_our_business(mine: Path) -> None:
    preflight(["mine"], [("hf", {"pretrained": "gpt2"})], include_path=mine)
    preflight(["mine", "mine_leakage_perm"], include_path=mine)
    preflight(["broken"], audits=PERM, include_path=mine)


def test_a_check_of_such_a_task_ends_before_anything_is_loaded(mine: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: pytest.fail("data was loaded"))
    told = {"tasks": "mine", "include_path": mine, "output_path": tmp_path / "out"}
    settings = check_plan({"model": "hf", "model_args": "pretrained=gpt2", **told})
    with pytest.raises(ValueError, match=f"mine cannot be audited: {WORDS}"):
        run_plan(settings)
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------------- models


@pytest.mark.parametrize(
    ("dtype", "said"),
    [
        ("bfloat", "'bfloat', which is no number format of torch; did you mean .*bfloat16"),
        ("nn", "'nn', which is no number format of torch; choose one of: auto, bfloat16"),
        ("torch.float16", "did you mean float16"),
        (16, "16, which is no number format"),
    ],
)
def test_a_dtype_that_torch_does_not_have_is_refused_with_the_nearest(dtype: object, said: str) -> None:
    for model in ("hf", "hf-prefix-tree"):
        with pytest.raises(ValueError, match=said):
            check_model(model, (), {"pretrained": "gpt2", "dtype": dtype})


@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "half", "float8_e5m2", None])
def test_a_dtype_that_torch_has_passes(dtype: str | None) -> None:
    check_model("hf", (), {"pretrained": "gpt2", "dtype": dtype})


@pytest.mark.parametrize(
    "texts",
    [
        ["pretrained=a,dtype=auto,pretrained=b"],
        ["pretrained=a", "pretrained=b"],
        ['{"pretrained": "a", "pretrained": "b"}'],
    ],
)
def test_an_argument_that_is_given_twice_is_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="model_args gives 'pretrained' twice; give it once"):
        check_given_once("model_args", texts)


@pytest.mark.parametrize(
    "text", ['a=[b=1,b=2],c={"d=": (1,b=1)},b=3', "a=x=1,b=a=2", "", '{"a": {"b": 1}, "b": 2}', "{"]
)
def test_equal_names_within_values_are_not_two_arguments(text: str) -> None:
    check_given_once("model_args", [text])


def test_where_arguments_are_read_a_second_pretrained_is_refused() -> None:
    with pytest.raises(ValueError, match="'pretrained' twice"):
        parsed_args("pretrained=a,pretrained=b")


# ---------------------------------------------------------------------- files of questions


def test_a_file_without_a_question_is_refused_where_nothing_else_could_read_it(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": "Which?", "solution": "B"}\n')
    for task in ("leakage_perm", "fresh_leakage_perm"):
        with pytest.raises(ValueError, match="no question can be read .*; give each row the fields question, choices"):
            preflight([task], data_files=str(file))
    file.write_text('{"prompt": "Which?"}\n{"question": "Which?", "choices": ["a", "b"], "answer": 1}\n')
    preflight(["fresh_leakage_perm"], data_files=str(file))


def test_a_file_that_a_tasks_own_prompt_cannot_read_is_refused_unless_its_questions_are_plain(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "task: mine\noutput_type: multiple_choice\ndoc_to_choice: [A, B]\ndoc_to_target: right\n"
        'doc_to_text: "{{stem}}\\nA. {{options[0]}}\\nB. {{options[1]}}\\nAnswer:"\n'
    )
    file = tmp_path / "rows.jsonl"
    for row in ('{"stem": "Which?", "options": ["a", "b"], "right": 1}', '{"question": "Q?", "choices": ["a", "b"]}'):
        file.write_text(row)
        preflight(["mine_leakage_perm"], include_path=tmp_path, data_files=str(file))
    file.write_text('{"prompt": "Which?", "solution": "B"}\n')
    with pytest.raises(ValueError, match=r"fields \['prompt', 'solution'\], and mine cannot read them as questions"):
        preflight(["mine_leakage_perm"], include_path=tmp_path, data_files=str(file))


def test_a_file_of_no_questions_is_refused_instead_of_a_task(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": "Which?"}\n')
    given = {"model": "hf", "model_args": "pretrained=gpt2", "output_path": tmp_path / "out"}
    for told in ({"tasks": str(file)}, {"tasks": "fresh", "unseen": file}):
        with pytest.raises(ValueError, match="no question can be read .*; give each row the fields question, choices"):
            run_plan(check_plan(given | told))
    assert not (tmp_path / "out").exists()


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"pretrained=.*, a folder without config.json; give the folder of a model"):
        check_model("hf-prefix-tree", (), {"pretrained": str(tmp_path)})
    check_model("hf", (), {"pretrained": str(tmp_path), "gguf_file": "model.gguf"})
    (tmp_path / "adapter_config.json").touch()
    check_model("hf", (), {"pretrained": str(tmp_path)})


@pytest.mark.parametrize("device", ["cudo", "cuda:99", "gpu"])
def test_a_device_that_torch_does_not_have_is_refused(device: str) -> None:
    for told in ({"device": device}, {}):
        arguments = {"pretrained": "gpt2"} | ({} if told else {"device": device})
        with pytest.raises(ValueError, match=f"device is '{device}', .*choose .*cpu"):
            preflight([], [("hf", arguments)], **told)


@pytest.mark.parametrize("device", [None, "cpu", "cuda:0"])  # lm_eval's default stands for the device that there is
def test_a_usual_device_passes(device: str | None) -> None:
    preflight([], [("hf", {"pretrained": "gpt2"}), ("dummy", {})], device=device)
