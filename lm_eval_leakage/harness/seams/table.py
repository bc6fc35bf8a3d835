"""The table of everything in lm_eval that this package patches or uses although private (docs/harness_seams.md).

Each entry is compared with the installed lm_eval by tests/harness/seams/test_seams.py, and by `patching` before the
object is used.
"""

from __future__ import annotations

from typing import NamedTuple

KNOWN_VERSION = "0.4.13"  # the version of lm_eval that the table describes


class Seam(NamedTuple):
    """One object of lm_eval that is patched, or used although it is private.

    module: the module of this package that patches or uses it
    target: `module:Class.attribute` in lm_eval
    why: what it is needed for, as lm_eval has no public way
    without: what is lost if lm_eval has no such object; the message to the user begins with it
    test: proves that what `without` says is what happens
    refuses: whether that is an error, raised before the model has done any work; else a warning, and the run continues
    parameters: parameters that the function must have
    names: variables and attributes that the function's code must use
    """

    module: str
    target: str
    why: str
    without: str
    test: str
    refuses: bool = False
    parameters: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def attribute(self) -> str:
        return self.target.rpartition(".")[2].rpartition(":")[2]


TESTS = "tests/harness/seams/test_seams.py::"
SEAMS_FOLDER = "lm_eval_leakage/harness/seams/"

SEAMS = (
    Seam(
        SEAMS_FOLDER + "task_manager.py",
        "lm_eval.tasks.manager:TaskManager.__init__",
        "adds the folder of our YAMLs to the search path; lm_eval reads no entry points for tasks",
        "leakage tasks are found only with `--include_path $(lm-eval-leakage plugin path)`",
        TESTS + "test_a_task_manager_with_other_parameters_is_left_unchanged_with_a_warning",
        parameters=("include_path", "include_defaults", "metadata"),
    ),
    Seam(
        SEAMS_FOLDER + "task_manager.py",
        "lm_eval.tasks.manager:TaskManager.match_tasks",
        "the command line checks task names with it; it must also accept names such as `arc_easy_leakage_perm`",
        "the command line knows only the audits that have a YAML of their own",
        TESTS + "test_without_match_tasks_the_command_line_knows_fewer_names_and_says_so",
        parameters=("task_list",),
    ),
    Seam(
        SEAMS_FOLDER + "tasks.py",
        "lm_eval.tasks.manager:TaskManager._load_spec",
        "looks names up in `_index`, whose entries have kind, YAML and settings, and builds tasks with `_factory`; "
        "both are replaced by ours: an audit of any of 14,000 tasks is found by its name without being listed",
        "audits of any task by name are not available",
        TESTS + "test_without_an_index_to_extend_there_is_one_warning",
        names=("_index", "_factory", "build"),
    ),
    Seam(
        SEAMS_FOLDER + "tasks.py",
        "lm_eval.tasks._factory:TaskFactory.build",
        "is also called for audits, which are made from the task that it builds",
        "audits of any task by name are not available",
        TESTS + "test_without_a_private_module_the_rest_works",
        parameters=("entry", "overrides", "registry"),
        names=("_build_task",),
    ),
    Seam(
        SEAMS_FOLDER + "tasks.py",
        "lm_eval.tasks._yaml_loader:load_yaml",
        "reads our YAMLs and those of a clean task's base as lm_eval does, with `include` and `!function`",
        "YAML files of tasks cannot be read, so no audit can be made",
        TESTS + "test_without_the_yaml_loader_an_audit_is_refused_in_a_sentence",
        refuses=True,
        parameters=("path", "resolve_func"),
    ),
    Seam(
        SEAMS_FOLDER + "command_line.py",
        "lm_eval.config.evaluate_config:EvaluatorConfig.process_tasks",
        "is the only place before the model is loaded where the keys of `--metadata` and the model's arguments are "
        "still separate",
        "mistakes in a run's options are noticed only after the model is loaded",
        TESTS + "test_without_the_check_of_options_a_run_continues_with_a_warning",
        parameters=("metadata",),
    ),
    Seam(
        SEAMS_FOLDER + "call_frames.py",
        "lm_eval.evaluator:evaluate",
        "its local variables hold the model and the run's tasks; lm_eval passes neither to a task before its requests "
        "are built",
        "a leakage task cannot find the model that will answer its requests",
        TESTS + "test_an_evaluate_with_other_variables_is_refused_before_the_model_works",
        refuses=True,
        names=("lm", "eval_tasks", "build_all_requests"),
    ),
    Seam(
        SEAMS_FOLDER + "call_frames.py",
        "lm_eval.evaluator:simple_evaluate",
        "its arguments hold the output path, the model's name and the seed; lm_eval passes none of them to a task",
        "answers are not saved for resuming a run, and the output path is not checked before the run",
        TESTS + "test_a_simple_evaluate_with_other_parameters_loses_the_saved_answers_and_says_so",
        parameters=("model", "model_args", "evaluation_tracker", "random_seed"),
    ),
    Seam(
        SEAMS_FOLDER + "backends.py",
        "lm_eval.api.registry:get_model",
        "`simple_evaluate` builds its model by it on every call; during `check` it hands out the model that is loaded "
        "already. A model given as an object would be missing from the results file",
        "the model is loaded again for every step of `check`",
        TESTS + "test_without_get_model_a_model_is_built_for_every_run",
        parameters=("model_name",),
    ),
    Seam(
        SEAMS_FOLDER + "command_line.py",
        "lm_eval.evaluator:get_git_commit_hash",
        "makes git print an error outside of a repository; `check` asks git in repositories only",
        "`fatal: not a git repository` is printed after every step of `check` outside of a repository",
        TESTS + "test_without_the_commit_hash_git_may_print_and_that_is_said",
    ),
    Seam(
        SEAMS_FOLDER + "results.py",
        "lm_eval.evaluator_utils:EvalAcc._to_eval_results",
        "is the only place where results and samples of a run are together before they are printed and saved",
        "the results of leakage tasks cannot be post-processed",
        TESTS + "test_without_the_assembly_of_results_tasks_are_refused_in_a_sentence",
        refuses=True,
        parameters=("samples",),
    ),
    *(
        Seam(
            SEAMS_FOLDER + "sharded_docs.py",
            f"lm_eval.api.task:Task.{name}",
            why,
            "a shard of a run (`--metadata shard=i/n`) cannot be asked",
            TESTS + "test_without_the_iterator_of_documents_a_shard_is_refused_in_a_sentence",
            refuses=True,
            parameters=("rank", "limit", "world_size", "samples"),
        )
        for name, why in (
            ("doc_iterator", "gives the questions of a run; with a shard, every n-th of them"),
            (
                "build_all_requests",
                "draws the few-shot examples question by question; with a shard, also for the questions in between. "
                "It raises an error without questions, where a shard may have none",
            ),
        )
    ),
    Seam(
        SEAMS_FOLDER + "results.py",
        "lm_eval.loggers.evaluation_tracker:eval_logger",
        "gets a warning `Could not save ...` where EvaluationTracker turns an error while saving into a message and "
        "lets the run exit with 0; a filter makes it an error again",
        "it is not noticed if the files of a run's results cannot be saved",
        TESTS + "test_without_the_logger_of_the_tracker_a_failure_to_save_is_not_noticed_and_that_is_said",
    ),
    Seam(
        SEAMS_FOLDER + "tasks.py",
        "lm_eval.utils:env",
        "compiles every template once per row; while an audit reads rows, its `from_string` is cached",
        "rows of tasks are read more slowly",
        TESTS + "test_without_the_template_environment_rows_are_read_more_slowly",
    ),
    Seam(
        SEAMS_FOLDER + "command_line.py",
        "lm_eval._cli:HarnessCLI.__init__",
        "builds the parser of `lm-eval` in `_parser` and `_subparsers`, to which we add our commands",
        "`lm-eval-leakage` has its own commands only; run audits by `lm_eval`, after `lm-eval-leakage plugin enable`",
        TESTS + "test_with_another_command_line_of_the_harness_our_own_commands_remain",
        names=("_parser", "_subparsers"),
    ),
    Seam(
        SEAMS_FOLDER + "backends.py",
        "lm_eval.api.model:TemplateLM._loglikelihood_tokens",
        "is overridden by our models: everything that `hf`, `vllm` and `local-completions` score passes through it, "
        "including rolling log-likelihoods",
        "our models `*-prefix-tree` are not available; use `hf`, `vllm` or `local-completions`",
        TESTS + "test_a_model_of_ours_is_refused_if_the_harness_scores_in_another_way",
        refuses=True,
        parameters=("requests",),
    ),
    Seam(
        SEAMS_FOLDER + "backends.py",
        "lm_eval.models.openai_completions:LocalCompletionsAPI._loglikelihood_tokens",
        "before it is called first, the model's `model_call`, `parse_logprobs` and `batch_loglikelihood_requests` are "
        "replaced by those of an object that checks every response",
        "what a server answers is not checked, so that wrong answers may count",
        TESTS + "test_without_a_way_to_the_responses_of_servers_nothing_is_checked_and_that_is_said",
        parameters=("requests",),
        names=("model_call", "parse_logprobs", "batch_loglikelihood_requests", "get_batched_requests"),
    ),
    Seam(
        SEAMS_FOLDER + "tasks.py",
        "lm_eval.api.task:ConfigurableTask.process_results",
        "scores one question of an ordinary task; one whose answers are no log-likelihoods gets no metrics",
        "a question without valid log-likelihoods counts in the accuracy of ordinary tasks",
        TESTS + "test_without_the_scoring_of_questions_invalid_answers_count_and_that_is_said",
        parameters=("doc", "results"),
    ),
    Seam(
        SEAMS_FOLDER + "backends.py",
        "lm_eval.models.huggingface:HFLM._model_call",
        "returns the logits of every token, in the model's precision and on its device; we add the method "
        "`token_scores` to models of this class",
        "`hf` gives no next-token distribution, so audits by token scores are skipped",
        TESTS + "test_without_a_way_to_the_logits_hf_offers_no_token_scores",
        parameters=("inps",),
    ),
)
