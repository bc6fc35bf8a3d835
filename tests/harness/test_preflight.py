"""What cannot succeed is refused before data and weights, by one check for all commands: mistakes in tasks, a model,
its arguments, files and a run's options.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import datasets
import huggingface_hub.constants
import pytest
from lm_eval.api.model import LM
from lm_eval.api.registry import model_registry
from lm_eval.models import MODEL_MAPPING
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness import backends as foreseen
from lm_eval_leakage.harness.backends import KNOWN, parameters_of, why_cannot_answer
from lm_eval_leakage.harness.model_checks import check_model, why_not, why_not_taken
from lm_eval_leakage.harness.models.question_requests import refuses
from lm_eval_leakage.harness.preflight import check_run_options, one_at_a_time, preflight
from lm_eval_leakage.harness.seams.registries import OUR_MODELS, class_of
from lm_eval_leakage.harness.tasks.templates import suffixes

WORDS = "the options are words of the task, the same for every question: yes, no"
PERM = ("leakage_perm",)


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch, hub_cache: Path) -> None:
    monkeypatch.setattr(TaskManager, "load", lambda *_: pytest.fail("a task was loaded"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)  # where no data set is looked for


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
        with pytest.raises(ValueError, match=f"cannot be audited: {WORDS}; leave it out, or choose another benchmark"):
            preflight(tasks, audits=audits, include_path=mine)
    with pytest.raises(ValueError, match="python cannot be audited: it is written in Python"):
        preflight(["python"], audits=PERM, include_path=mine)


@pytest.mark.parametrize(
    "tasks", [("arc_easy",), ("mmlu",), ("mmlu_stem_tasks",), ("fresh",), ("mmlu_*",), ()], ids=str
)
def test_tasks_that_only_their_rows_could_show_pass(tasks: tuple[str, ...]) -> None:
    preflight(tasks, audits=PERM)


def test_one_task_without_options_among_others_is_refused_unless_the_command_leaves_it_out(mine: Path) -> None:
    for tasks, audits in ((["piqa", "mine"], PERM), (["piqa_leakage_perm", "mine_leakage_perm"], ())):
        with pytest.raises(ValueError, match=r"mine cannot be audited: .*; leave it out, or choose another benchmark"):
            preflight(tasks, audits=audits, include_path=mine)
        preflight(tasks, audits=audits, include_path=mine, leaves_out=True)


def test_a_run_of_such_a_task_itself_is_none_of_our_business(mine: Path) -> None:
    preflight(["mine"], [("hf", {"pretrained": "gpt2"})], include_path=mine)
    preflight(["mine", "mine_leakage_perm"], include_path=mine)


def test_a_broken_yaml_names_no_task(mine: Path) -> None:
    with pytest.raises(ValueError, match="'broken' is not a task, group, tag or audit"):
        preflight(["broken"], audits=PERM, include_path=mine)


# ---------------------------------------------------------------------- files of questions


def test_a_file_without_a_question_is_refused_where_nothing_else_could_read_it(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": "Which?", "solution": "B"}\n')
    for task in ("leakage_perm", "fresh_leakage_perm"):
        with pytest.raises(ValueError, match="no question can be read .*; give each row the fields question, choices"):
            preflight([task], data_files=str(file))
    file.write_text('{"prompt": "Which?"}\n{"question": "Which?", "choices": ["a", "b"], "answer": 1}\n')
    preflight(["fresh_leakage_perm"], data_files=str(file))


def test_every_model_of_the_harness_and_ours_is_declared() -> None:
    assert set(MODEL_MAPPING) | set(OUR_MODELS) == set(KNOWN)


@pytest.mark.parametrize("name", ["hf", "hf-prefix-tree", "local-completions", "local-chat-completions", "dummy"])
def test_what_is_declared_of_a_model_is_what_its_class_does(name: str) -> None:
    kind, backend = class_of(name), KNOWN[name]
    assert ("token_scores" in backend.answers) == issubclass(kind, HFLM)
    for need in ("loglikelihood", "generate_until"):
        assert (need in backend.answers) == (not refuses(getattr(kind, need), None, []))


@pytest.mark.parametrize("name", [name for name, backend in KNOWN.items() if backend.arguments])
def test_arguments_that_are_accepted_without_a_look_at_the_class_are_those_of_the_class(name: str) -> None:
    names, required, _ = parameters_of(class_of(name))
    assert KNOWN[name].arguments <= names
    assert KNOWN[name].surely_takes(required)
    assert not KNOWN[name].surely_takes([])
    assert not KNOWN[name].surely_takes([*required, "no_such_argument"])


def test_chat_models_can_run_only_audits_that_generate() -> None:
    able = {suffix for suffix in suffixes() if not why_not("local-chat-completions", suffix)}
    assert able == {suffix for suffix in suffixes() if not why_not("openai-chat-completions", suffix)}
    assert {"leakage_guided", "leakage_ngram"} <= able
    assert "leakage_perm" not in able
    assert {s for s in suffixes() if why_not("local-completions", s)} == {"leakage_tokens"}
    assert not any(why_not("hf", suffix) or why_not("hf-prefix-tree", suffix) for suffix in suffixes())


def test_a_model_of_another_package_is_judged_by_its_class(monkeypatch) -> None:
    class Scores(LM):
        loglikelihood_rolling = None

        def loglikelihood(self, requests):
            return [(0.0, False) for _ in requests]

        def generate_until(self, requests):
            raise NotImplementedError

    theirs = type("OfHf", (HFLM,), {})
    monkeypatch.setitem(model_registry._objs, "theirs", Scores)
    monkeypatch.setitem(model_registry._objs, "theirs-hf", theirs)
    monkeypatch.setitem(model_registry._objs, "broken", "no_such_package:Model")
    needs = ("loglikelihood", "generate_until", "token_scores")
    assert [why_cannot_answer("theirs", need) for need in needs] == [
        "",
        "theirs does not generate text",
        "theirs does not give the next-token distribution (`hf` and `hf-prefix-tree` do)",
    ]
    check_model("broken", PERM, {"anything": 1})
    for name in ("theirs-hf", "broken"):
        assert {why_cannot_answer(name, need) for need in needs} == {""}


@pytest.mark.parametrize(
    ("model", "given", "said"),
    [
        ("hff", {}, "'hff' is not a model of lm_eval; did you mean hf"),
        ("zzzz", {}, "'zzzz' is not a model of lm_eval; choose one of: "),
        ("hf", {"pretraind": "x"}, "--model_args has 'pretraind', which hf does not take; did you mean pretrained"),
        ("hf", {}, "--model_args lacks pretrained, which hf needs; add pretrained=NAME_OR_FOLDER"),
        ("hf-prefix-tree", {"pretrained": "gpt2", "dtyp": "bfloat16"}, "did you mean dtype"),
        ("hf", {"pretrained": "gpt2", "dtpye": "float32"}, "which hf does not take; did you mean dtype"),
        ("hf", {"pretrained": "gpt2", "load_in_4bits": True}, "which hf does not take; did you mean load_in_4bit"),
        ("hf", {"pretrained": "/nowhere/x"}, "pretrained=/nowhere/x, but there is no such folder; check the path"),
        ("hf", {"pretrained": "gpt2", "peft": "./nowhere"}, "peft=./nowhere, but there is no such folder"),
        ("hf", {"pretrained": "a/b/c"}, "pretrained=a/b/c, but there is no such folder"),
        (
            "hf",
            {"pretrained": "gpt2", "dtype": "bfloat"},
            "'bfloat', which is no number format of torch; did you mean",
        ),
        ("hf-prefix-tree", {"pretrained": "gpt2", "dtype": "nn"}, "torch; choose one of: auto, bfloat16"),
        ("hf", {"pretrained": "gpt2", "dtype": 16}, "16, which is no number format"),
    ],
)
def test_what_a_model_does_not_take_is_refused_with_the_remedy(model, given, said) -> None:
    with pytest.raises(ValueError, match="^") as raised:
        check_model(model, [], given)
    assert said in str(raised.value)


def model_folder(folder: Path, without: str = "") -> str:
    """Names of files of a model, without one of them."""
    folder.mkdir(exist_ok=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        if name != without:
            (folder / name).write_text("{}")
    return str(folder)


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("config.json", "a folder without config.json; name the folder to which a model was saved"),
        ("model.safetensors", "a folder without weights, such as model.safetensors; download or save them into it"),
        ("tokenizer.json", "a folder without a tokenizer, such as tokenizer.json; save it there too, or name where"),
    ],
)
def test_a_folder_in_which_a_file_of_the_model_is_missing_is_refused(tmp_path, missing, said) -> None:
    folder = model_folder(tmp_path / "m", missing)
    for model in ("hf", "hf-prefix-tree"):
        with pytest.raises(ValueError, match="^") as raised:
            check_model(model, [], {"pretrained": folder})
        assert str(raised.value).startswith(f"--model_args has pretrained={folder}, {said}")


def test_folders_that_are_whole_in_another_way_pass(tmp_path) -> None:
    whole, part = model_folder(tmp_path / "whole"), model_folder(tmp_path / "part", "tokenizer.json")
    check_model("hf", [], {"pretrained": part, "tokenizer": whole})
    (tmp_path / "part" / "config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
    check_model("hf", [], {"pretrained": part})
    check_model("hf", [], {"pretrained": str(tmp_path), "subfolder": "whole"})
    check_model("hf", [], {"pretrained": str(tmp_path), "gguf_file": "model.gguf"})


def test_what_is_wrong_with_a_folder_beside_the_model_is_reported_too(tmp_path) -> None:
    whole, empty = model_folder(tmp_path / "whole"), tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match=r"has peft=.*empty, a folder without adapter_config.json; name the folder"):
        check_model("hf", [], {"pretrained": whole, "peft": str(empty)})
    with pytest.raises(ValueError, match=r"has tokenizer=.*empty, a folder without a tokenizer"):
        check_model("hf", [], {"pretrained": whole, "tokenizer": str(empty)})
    (empty / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"a folder of an adapter; give the model .* and the adapter as peft=.*empty"):
        check_model("hf", [], {"pretrained": str(empty)})


def test_a_name_that_is_neither_a_folder_nor_in_the_hubs_cache_is_refused_offline(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    sentence = "--model_args has pretrained=m/tyni, which is no folder and not in the hub's cache"
    with pytest.raises(ValueError, match="^") as raised:
        check_model("hf", [], {"pretrained": "m/tyni"})
    assert str(raised.value).startswith(f"{sentence}, and HF_HUB_OFFLINE is set; check the path, or unset")
    (tmp_path / "m" / "tiny").mkdir(parents=True)
    with pytest.raises(ValueError, match="^") as raised:
        check_model("hf", [], {"pretrained": "m/tyni"})
    assert str(raised.value) == f"{sentence}; did you mean {Path('m/tiny')}"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (None, "the Hugging Face Hub cannot be reached (ConnectError); check the path, or the connection"),
        ("RepoNotFound", "the Hugging Face Hub has no such model; check the path, or run `hf auth login`"),
        ("GatedRepo", "gives it only to those who have accepted its terms; accept them, and run `hf auth login`"),
        ("RevisionNotFound", "has no revision 'main' on the Hugging Face Hub; check revision"),
        ("EntryNotFound", ""),
    ],
)
def test_a_name_that_is_not_in_the_cache_is_looked_up_once(monkeypatch, status, said) -> None:
    from huggingface_hub.utils import get_session, hf_raise_for_status

    def head(url: str, **_: object) -> None:
        library = sys.modules[type(get_session()).__module__.partition(".")[0]]
        if status is None:
            raise library.ConnectError("Name or service not known")
        request = library.Request("HEAD", url)
        hf_raise_for_status(library.Response(404, headers={"X-Error-Code": status}, request=request))

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", head)
    args = {"pretrained": f"org/{status}"}
    if not said:
        check_model("hf", [], args)
        return
    with pytest.raises(ValueError, match="^") as raised:
        check_model("hf", [], args)
    assert said in str(raised.value)


def test_an_argument_that_the_model_does_not_take_is_named_when_it_is_loaded() -> None:
    error = TypeError("LlamaForCausalLM.__init__() got an unexpected keyword argument 'foo'")
    sentence = "--model_args has 'foo', which neither hf nor LlamaForCausalLM takes; leave it out"
    assert why_not_taken(error, "hf", {"foo": 1}) == sentence
    assert why_not_taken(error, "hf", {"bar": 1}) == ""
    assert why_not_taken(TypeError("unhashable type: 'list'"), "hf", {"foo": 1}) == ""


def test_what_a_backend_cannot_answer_is_said_before_its_package_is_asked_for(monkeypatch) -> None:
    monkeypatch.setattr(foreseen, "find_spec", lambda name: None)
    for model in ("openai-chat-completions", "anthropic-chat", "litellm"):
        with pytest.raises(ValueError, match=f"leakage_perm cannot run: {model} gives no log-likelihoods"):
            preflight(["arc_easy"], [(model, {"model": "x"})], audits=PERM)


def test_arguments_that_others_take_and_existing_folders_pass(tmp_path) -> None:
    whole = model_folder(tmp_path / "m")
    check_model("hf", [], {"pretrained": whole, "attn_implementation": "eager", "load_in_4bit": True})
    check_model("hf", [], {"pretrained": whole, "torch_dtype": "auto", "rope_theta": 5e5, "use_cache": True})
    check_model("hf", [], {"pretrained": "s3://bucket/some/model"})
    check_model("hf", [], {"pretrained": "EleutherAI/pythia-70m", "device_map": "auto", "max_len": 3})
    for dtype in ("auto", "bfloat16", "half", "float8_e5m2", None):
        check_model("hf", (), {"pretrained": "gpt2", "dtype": dtype})


@pytest.mark.parametrize(
    ("model", "package", "extra"),
    [("vllm", "vllm", "vllm"), ("local-completions", "tenacity", "api")],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(model, package, extra, monkeypatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(foreseen, "find_spec", lambda name: None if name == package else there(name) or True)
    with pytest.raises(ImportError) as raised:
        check_model(model, [], {"pretrained": "x"})
    sentence = f"--model {model} needs {package}, which is not installed; run `pip install 'lm_eval[{extra}]'`"
    assert str(raised.value) == sentence


# ---------------------------------------------------------------------- a run's options


def options(tasks: list[str], **given):
    usual = {"model": "hf", "model_args": {"pretrained": "gpt2"}, "metadata": {}, "output_path": None}
    return SimpleNamespace(tasks=tasks, include_path=None, **usual | given)


@pytest.mark.parametrize(
    ("tasks", "given", "said"),
    [
        (
            ["mmlu_leakage_perm"],
            {"model": "local-chat-completions"},
            "gives no log-likelihoods of given texts; choose",
        ),
        (["fresh_leakage_perm"], {"metadata": {"data_files": "nowhere.jsonl"}}, "but there is no such file; check"),
        ([""], {}, "--tasks names no task; name tasks or audits, such as --tasks mmlu_leakage_perm"),
        (
            ["mmlu_leakage_perm"],
            {"include_path": "/nowhere"},
            "include_path is '/nowhere', but there is no such folder",
        ),
    ],
    ids=str,
)
def test_a_runs_mistakes_are_reported_before_data(tasks, given, said) -> None:
    chosen = options(tasks)
    vars(chosen).update(given)
    with pytest.raises((ValueError, OSError)) as raised:
        check_run_options(chosen)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("model", "given", "is_reported"),
    [
        ("local-completions", {}, True),
        ("chat-completions-echo", {}, True),
        ("local-completions", {"num_concurrent": 1}, False),
        ("hf", {"pretrained": "gpt2"}, False),
    ],
)
def test_a_run_with_a_server_that_gets_one_request_at_a_time_is_warned_how_to_send_more(
    model, given, is_reported
) -> None:
    assert ("num_concurrent=16" in one_at_a_time(model, given)) == is_reported


def test_a_run_with_other_tasks_continues_without_the_audits_that_its_model_cannot_run(monkeypatch) -> None:
    monkeypatch.setattr(foreseen, "find_spec", lambda name: True)
    for tasks in (["mmlu_leakage_perm", "gsm8k"], ["mmlu_leakage_guided"], ["mmlu_leakage_perm,mmlu_leakage_guided"]):
        check_run_options(options(tasks, model="local-chat-completions", model_args={"model": "x"}))


@pytest.mark.parametrize("task", ["kept_leakage_perm", "all_kept_leakage_perm"])
def test_data_that_cannot_be_downloaded_are_reported_before_the_model_is_loaded(tmp_path, monkeypatch, task) -> None:
    settings = {
        "task": "kept",
        "dataset_path": "nobody/nothing",
        "output_type": "multiple_choice",
        "test_split": "test",
    }
    settings |= {"doc_to_text": "{{question}}", "doc_to_choice": "{{choices}}", "doc_to_target": "answer"}
    (tmp_path / "kept.yaml").write_text(json.dumps(settings), encoding="utf-8")
    (tmp_path / "all.yaml").write_text(json.dumps({"group": "all_kept", "task": ["kept"]}), encoding="utf-8")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    run = options([task])
    run.include_path = str(tmp_path)
    with pytest.raises(ValueError, match="its data are not in the cache of `datasets`, and cannot be downloaded"):
        check_run_options(run)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    check_run_options(run)  # which makes no request
