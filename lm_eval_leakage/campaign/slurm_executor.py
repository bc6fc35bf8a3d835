"""The plan's `slurm:` as submitit takes it, and the jobs of submitit by their ids."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from lm_eval_leakage.texts import brief

SLURM, LOCAL = "slurm", "local"  # submitit's names for its executors
FOR_EVERY_CLUSTER = ("name", "timeout_min", "mem_gb", "cpus_per_task", "gpus_per_node", "stderr_to_stdout")
OF_ONE_PROCESS = ("nodes", "tasks_per_node", "ntasks_per_node", "time")
DEFAULTS: Mapping[str, Any] = {"name": "campaign", "timeout_min": 240}  # submitit's own limit is 5 minutes
# How often submitit puts a job back in the queue that has reached its time limit: the retries of units decide instead.
REQUEUES = 1_000
CONTROLLER = "submitit.local._local"  # the module that a local job's process runs


def need_submitit() -> None:
    """Raises ImportError, with the remedy, if it is not installed. Imports nothing."""
    if find_spec("submitit") is None:
        raise ImportError(
            "--engine slurm needs submitit, which is not installed; run `pip install 'lm-eval-leakage[slurm]'`"
        )


def cluster_of(address: str | None) -> str:
    """Raises ValueError for an address that is neither `slurm` nor `local`."""
    if address not in (None, SLURM, LOCAL):
        raise ValueError(f"--address is {address!r}; with --engine slurm give 'local', for jobs on this machine, or none")
    return address or SLURM


def executor(folder: Path, cluster: str, told: Mapping[str, Any], gpus: int) -> Any:
    """A submitit executor for workers that need so many GPUs; raises ValueError if there is no Slurm here, or for a
    parameter that submitit does not know.

    told: the plan's `slurm:`, names of sbatch (`partition`) or of submitit (`timeout_min`, `slurm_partition`)
    """
    import submitit

    try:
        made = submitit.AutoExecutor(folder, cluster, **{f"{cluster}_max_num_timeout": REQUEUES})
    except RuntimeError as error:
        raise ValueError(
            "--engine slurm finds no srun on this machine; run it where jobs of the cluster are submitted, or with "
            "--address local"
        ) from error
    own = {"gpus_per_node": gpus or None, **DEFAULTS, **told}
    try:
        made.update_parameters(**{_name(name): value for name, value in own.items()})
    except (NameError, AssertionError, TypeError, ValueError) as error:
        raise ValueError(f"slurm is {brief(dict(told))}, which submitit refuses ({str(error).splitlines()[0]})") from error
    return made


def refuse_several_processes(told: Mapping[str, Any]) -> None:
    """Raises ValueError for a parameter that would make more of a job than one process, the worker."""
    for name in told:
        plain = name.removeprefix(f"{SLURM}_")
        if plain == "time":
            raise ValueError(f"slurm has {name!r}; give the time limit of a job in minutes, as timeout_min")
        if plain in OF_ONE_PROCESS:
            raise ValueError(
                f"slurm has {name!r}, but a job is one process on one node; use more of them with `workers`, and "
                "more GPUs for each with the model's `gpus`"
            )


def job_of(folder: Path, cluster: str, job_id: str) -> Any:
    """A job of submitit, submitted by any process."""
    import submitit

    return (submitit.LocalJob if cluster == LOCAL else submitit.SlurmJob)(folder, job_id)


def has_ended(job: Any, *, ask: bool) -> bool:
    """Whether a job has ended in any way.

    ask: ask Slurm now, once for all jobs; else submitit asks rarely. A result that the job has left is always seen
    """
    import submitit

    if isinstance(job, submitit.LocalJob):
        return bool(job.done()) and not _is_local_job(int(job.job_id))
    if job.done(force_check=ask):
        return True
    # Where jobs that are preempted are cancelled, they stay in this state; where there is no accounting, sacct fails.
    return ask and job.state.upper().startswith(("PREEMPTED", "UNKNOWN")) and not _is_in_queue(job.job_id)


def _is_local_job(process_id: int) -> bool:
    """submitit knows only the local jobs of its own process."""
    try:
        process = psutil.Process(process_id)
        return process.status() != psutil.STATUS_ZOMBIE and CONTROLLER in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def _is_in_queue(job_id: str) -> bool:
    asked = subprocess.run(["squeue", "--noheader", f"--jobs={job_id}"], capture_output=True, text=True, check=False)
    return bool(asked.stdout.strip()) if asked.returncode == 0 else "Invalid job id" not in asked.stderr


def _name(name: str) -> str:
    is_known = name in FOR_EVERY_CLUSTER or name.startswith((f"{SLURM}_", f"{LOCAL}_"))
    return name if is_known else f"{SLURM}_{name}"
