"""The table of everything in lm_eval that this package patches or uses although private (docs/harness_seams.md).

Each entry is compared with the installed lm_eval by tests/harness/patches/test_seams.py, and by `patching` before the
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


TESTS = "tests/harness/patches/test_seams.py::"
PATCHES = "lm_eval_leakage/harness/seams/"

SEAMS = (
    Seam(
        PATCHES + "task_manager.py",
        "lm_eval.tasks.manager:TaskManager.__init__",
        "adds the folder of our YAMLs to the search path; lm_eval reads no entry points for tasks",
        "leakage tasks are found only with `--include_path $(lm-eval-leakage path)`",
        TESTS + "test_a_task_manager_with_other_parameters_is_left_unchanged_with_a_warning",
        parameters=("include_path", "include_defaults", "metadata"),
    ),
    Seam(
        PATCHES + "task_manager.py",
        "lm_eval.tasks.manager:TaskManager.match_tasks",
        "the command line checks task names with it; it must also accept names such as `arc_easy_leakage_perm`",
        "the command line knows only the audits that have a YAML of their own",
        TESTS + "test_without_match_tasks_the_command_line_knows_fewer_names_and_says_so",
        parameters=("task_list",),
    ),
    Seam(
        PATCHES + "task_index.py",
        "lm_eval.tasks.manager:TaskManager._load_spec",
        "looks names up in `_index` and builds tasks with `_factory`, which are replaced by ours: an audit of any of "
        "14,000 tasks is found by its name without being listed",
        "audits of any task by name are not available",
        TESTS + "test_without_an_index_to_extend_there_is_one_warning",
        names=("_index", "_factory", "build"),
    ),
    Seam(
        PATCHES + "task_index.py",
        "lm_eval.tasks._factory:TaskFactory.build",
        "is also called for audits, which are made from the task that it builds",
        "audits of any task by name are not available",
        TESTS + "test_without_a_private_module_the_rest_works",
        parameters=("entry", "overrides", "registry"),
        names=("_build_task",),
    ),
    Seam(
        PATCHES + "task_index.py",
        "lm_eval.tasks._factory:TaskFactory._load_full_config",
        "returns the settings of one of our own YAMLs, for another audit of the same data",
        "audits of any task by name are not available",
        TESTS + "test_without_a_private_module_the_rest_works",
        parameters=("entry", "overrides"),
    ),
    Seam(
        PATCHES + "task_index.py",
        "lm_eval.tasks._index:Entry",
        "is the index's entry for a task: its kind, its YAML, its settings; also for `census`, `ls` and `clean`",
        "audits of any task by name are not available",
        TESTS + "test_without_a_private_module_the_rest_works",
        parameters=("name", "kind", "yaml_path", "cfg", "tags"),
    ),
    Seam(
        PATCHES + "task_index.py",
        "lm_eval.tasks._index:Kind",
        "distinguishes tasks from groups and tags in the index",
        "audits of any task by name are not available",
        TESTS + "test_without_a_private_module_the_rest_works",
    ),
    Seam(
        PATCHES + "yaml_files.py",
        "lm_eval.tasks._yaml_loader:load_yaml",
        "reads our YAMLs and those of a clean task's base as lm_eval does, with `include` and `!function`",
        "YAML files of tasks cannot be read, so no audit can be made",
        TESTS + "test_without_the_yaml_loader_an_audit_is_refused_in_a_sentence",
        refuses=True,
        parameters=("path", "resolve_func"),
    ),
    Seam(
        PATCHES + "yaml_files.py",
        "lm_eval.tasks._yaml_loader:_import_func_in_yml",
        "imports a function that a task's settings in the index give as a path, for the census",
        "the functions of tasks cannot be imported, so there is no census",
        TESTS + "test_without_the_import_of_functions_the_census_is_refused_in_a_sentence",
        refuses=True,
        parameters=("qual", "base_dir"),
    ),
    Seam(
        PATCHES + "run_options.py",
        "lm_eval.config.evaluate_config:EvaluatorConfig.process_tasks",
        "is the only place before the model is loaded where the keys of `--metadata` and the model's arguments are "
        "still separate",
        "mistakes in a run's options are noticed only after the model is loaded",
        TESTS + "test_without_the_check_of_options_a_run_continues_with_a_warning",
        parameters=("metadata",),
    ),
    Seam(
        PATCHES + "registries.py",
        "lm_eval.api.registry:model_registry",
        "registers our models, such as `hf-prefix-tree`, without importing them; lm_eval reads no entry points for "
        "models",
        "`--model hf-prefix-tree` and our other models are not available",
        TESTS + "test_without_a_registry_of_models_the_tasks_are_still_known",
    ),
    *(
        Seam(
            PATCHES + "registries.py",
            f"lm_eval.api.registry:{name}",
            f"registers {what} by name when our task is imported; lm_eval reads no entry points for them",
            "no leakage task can be loaded",
            TESTS + "test_without_a_registry_that_tasks_need_they_are_refused_in_a_sentence",
            refuses=True,
        )
        for name, what in (
            ("filter_registry", "the filter `leakage`"),
            ("metric_registry", "the rows that our statistics declare"),
            ("aggregation_registry", "the functions that compute these rows"),
            ("metric_agg_registry", "the aggregation that belongs to a row"),
            ("higher_is_better_registry", "the direction of a row"),
        )
    ),
    Seam(
        PATCHES + "call_frames.py",
        "lm_eval.evaluator:evaluate",
        "its local variables hold the model and the run's tasks; lm_eval passes neither to a task before its requests "
        "are built",
        "a leakage task cannot find the model that will answer its requests",
        TESTS + "test_an_evaluate_with_other_variables_is_refused_before_the_model_works",
        refuses=True,
        names=("lm", "eval_tasks", "build_all_requests"),
    ),
    Seam(
        PATCHES + "call_frames.py",
        "lm_eval.evaluator:simple_evaluate",
        "its arguments hold the output path, the model's name and the seed; lm_eval passes none of them to a task",
        "answers are not saved for resuming a run, and the output path is not checked before the run",
        TESTS + "test_a_simple_evaluate_with_other_parameters_loses_the_saved_answers_and_says_so",
        parameters=("model", "model_args", "evaluation_tracker", "random_seed"),
    ),
    Seam(
        PATCHES + "request_type.py",
        "lm_eval.api.instance:Instance",
        "names the model's method that `evaluate` calls; the method `leakage` is added to the model's class, so that "
        "answers of every kind are saved as they come and checked question by question",
        "leakage tasks cannot run",
        TESTS + "test_requests_without_a_type_are_refused_before_the_model_works",
        refuses=True,
        parameters=("request_type", "doc", "arguments", "idx"),
    ),
    Seam(
        PATCHES + "kept_model.py",
        "lm_eval.api.registry:get_model",
        "`simple_evaluate` builds its model by it on every call; during `check` it hands out the model that is loaded "
        "already. A model given as an object would be missing from the results file",
        "the model is loaded again for every step of `check`",
        TESTS + "test_without_get_model_a_model_is_built_for_every_run",
        parameters=("model_name",),
    ),
    Seam(
        PATCHES + "git_hash.py",
        "lm_eval.evaluator:get_git_commit_hash",
        "makes git print an error outside of a repository; `check` asks git in repositories only",
        "`fatal: not a git repository` is printed after every step of `check` outside of a repository",
        TESTS + "test_without_the_commit_hash_git_may_print_and_that_is_said",
    ),
    Seam(
        PATCHES + "evaluate_results.py",
        "lm_eval.evaluator_utils:EvalAcc._to_eval_results",
        "is the only place where results and samples of a run are together before they are printed and saved",
        "the results of leakage tasks cannot be post-processed",
        TESTS + "test_without_the_assembly_of_results_tasks_are_refused_in_a_sentence",
        refuses=True,
        parameters=("samples",),
    ),
    *(
        Seam(
            PATCHES + "sharded_docs.py",
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
    *(
        Seam(
            PATCHES + "saved_files.py",
            f"lm_eval.loggers.evaluation_tracker:EvaluationTracker.{name}",
            "turns an error while saving into a log message and lets the run exit with 0; we check afterwards "
            "whether the file is complete. It writes the first line of an audit's log, and we the others if ours is "
            "the same",
            "it is not checked whether the files of a run's results are complete, and they are written more slowly",
            TESTS + "test_a_tracker_that_saves_in_another_way_is_left_unchanged_with_a_warning",
            parameters=parameters,
            names=("output_path", "date_id"),
        )
        for name, parameters in (
            ("save_results_aggregated", ("results", "samples")),
            ("save_results_samples", ("task_name", "samples")),
        )
    ),
    Seam(
        PATCHES + "jinja_templates.py",
        "lm_eval.utils:env",
        "compiles every template once per row; while an audit reads rows, its `from_string` is cached. The census "
        "parses templates with it",
        "rows of tasks are read more slowly",
        TESTS + "test_without_the_template_environment_rows_are_read_more_slowly",
    ),
    Seam(
        PATCHES + "cli_parser.py",
        "lm_eval._cli:HarnessCLI",
        "is the command line that ours extends: `run`, `ls`, `validate`",
        "`lm-eval-leakage` has its own commands only; run audits by `lm_eval`, after `lm-eval-leakage enable`",
        TESTS + "test_with_another_command_line_of_the_harness_our_own_commands_remain",
    ),
    Seam(
        PATCHES + "cli_parser.py",
        "lm_eval._cli:HarnessCLI.__init__",
        "builds the parser of `lm-eval` in `_parser` and `_subparsers`, to which we add our commands",
        "`lm-eval-leakage` has its own commands only; run audits by `lm_eval`, after `lm-eval-leakage enable`",
        TESTS + "test_with_another_command_line_of_the_harness_our_own_commands_remain",
        names=("_parser", "_subparsers"),
    ),
    Seam(
        "lm_eval_leakage/harness/models/prefix_tree_lm.py",
        "lm_eval.models.huggingface:HFLM._loglikelihood_tokens",
        "is overridden: everything that `hf` scores passes through it, including rolling log-likelihoods",
        "`--model hf-prefix-tree` is not available; use `--model hf`",
        TESTS + "test_hf_prefix_tree_is_refused_if_hf_is_implemented_differently",
        refuses=True,
        parameters=("requests", "disable_tqdm", "override_bs"),
    ),
    *(
        Seam(
            "lm_eval_leakage/harness/models/processes.py",
            f"lm_eval.models.huggingface:HFLM.{name}",
            why,
            "`--model hf-prefix-tree` is not available; use `--model hf`",
            TESTS + "test_hf_prefix_tree_is_refused_if_hf_is_implemented_differently",
            refuses=True,
            names=(f"_{name}",),
        )
        for name, why in (
            ("rank", "reads `_rank`, which we correct on several nodes, since that of `hf` starts at 0 on each"),
            (
                "world_size",
                "reads `_world_size`, which we set wherever accelerate knows of several processes; `hf` does so on "
                "several GPUs of one node only",
            ),
        )
    ),
    Seam(
        "lm_eval_leakage/harness/models/vllm_engine.py",
        "lm_eval.api.model:TemplateLM._loglikelihood_tokens",
        "is overridden: everything that `vllm` scores passes through it, including rolling log-likelihoods",
        "`--model vllm-prefix-tree` is not available; use `--model vllm`",
        "tests/harness/test_vllm_prefix_tree_lm.py::test_it_is_refused_if_the_harness_scores_in_another_way",
        refuses=True,
        parameters=("requests",),
    ),
    Seam(
        PATCHES + "api_model.py",
        "lm_eval.models.api_models:TemplateAPI._loglikelihood_tokens",
        "is overridden by vllm_server_lm.py: everything that `local-completions` scores passes through it",
        "`--model vllm-server-prefix-tree` is not available; use `--model local-completions`",
        TESTS + "test_vllm_server_prefix_tree_is_refused_if_local_completions_is_implemented_differently",
        refuses=True,
        parameters=("requests",),
        names=("batch_loglikelihood_requests",),
    ),
    Seam(
        PATCHES + "api_model.py",
        "lm_eval.models.openai_completions:LocalCompletionsAPI._loglikelihood_tokens",
        "before it is called first, the model's `model_call`, `parse_logprobs` and `batch_loglikelihood_requests` are "
        "replaced by those of an object that checks every response",
        "what a server answers is not checked, so that wrong answers may count",
        TESTS + "test_without_a_way_to_the_responses_of_servers_nothing_is_checked_and_that_is_said",
        parameters=("requests",),
        names=("model_call", "parse_logprobs", "batch_loglikelihood_requests", "get_batched_requests"),
    ),
    Seam(
        PATCHES + "task_scores.py",
        "lm_eval.api.task:ConfigurableTask.process_results",
        "scores one question of an ordinary task; one whose answers are no log-likelihoods gets no metrics",
        "a question without valid log-likelihoods counts in the accuracy of ordinary tasks",
        TESTS + "test_without_the_scoring_of_questions_invalid_answers_count_and_that_is_said",
        parameters=("doc", "results"),
    ),
    Seam(
        PATCHES + "hf_model.py",
        "lm_eval.models.huggingface:HFLM._model_call",
        "returns the logits of every token, in the model's precision and on its device; we add the method "
        "`token_scores` to models of this class",
        "`hf` gives no next-token distribution, so audits by token scores are skipped",
        TESTS + "test_without_a_way_to_the_logits_hf_offers_no_token_scores",
        parameters=("inps",),
    ),
    Seam(
        PATCHES + "cache_hook.py",
        "lm_eval.api.model:CacheHook.add_partial",
        "is called by every backend as answers come, so that they are saved if a run is killed; ours wraps that "
        "of the run during our requests",
        "answers are saved only when a call to the model returns, about once a minute",
        TESTS + "test_without_a_cache_hook_answers_come_when_a_call_returns",
        parameters=("attr", "req", "res"),
    ),
)
