"""Jobs of submitit: what a job does on its node, how it is submitted, and whether it is still there."""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.local_engine import LocalEngine
from lm_eval_leakage.jobs.queue import read_queue, record_loss
from lm_eval_leakage.jobs.supervision import carry_out
from lm_eval_leakage.texts import brief, visible

JOBS = "slurm"  # folder of submitit's files
CLUSTER, THIS_MACHINE = "slurm", "local"  # as submitit names its executors
FOR_EVERY_CLUSTER = ("name", "timeout_min", "mem_gb", "cpus_per_task", "gpus_per_node", "stderr_to_stdout")
OF_ONE_PROCESS = ("nodes", "tasks_per_node", "ntasks_per_node", "time")
JOB_DEFAULTS: Mapping[str, Any] = {"name": "campaign", "timeout_min": 240}  # submitit's own limit is 5 minutes
# How often submitit puts a job back in the queue that has reached its time limit: the retries of units decide instead.
REQUEUES = 1_000
CONTROLLER = "submitit.local._local"  # the module that a local job's process runs
FAILED = "error"  # submitit's word in the result of a job that raised an exception
PUT_BACK = "its job reached its time limit or was preempted, and was put back in the queue"
DIED = "died (killed, out of memory, preempted, or its node was lost)"


@dataclass(frozen=True)
class SlurmJob:
    """A job of Slurm: submitit sends it to the cluster and calls it there. The jobs of a model are all alike.

    The worker is a process of its own: if it is killed for want of memory, the job goes on with another one, and the
    job can answer Slurm's signals at any time.

    folder: that of the plan
    model: whose units it runs
    name: unique in the folder; the names of its workers begin with it
    cluster: `slurm` or `local`, as submitit names them
    """

    folder: Path
    model: str
    name: str
    cluster: str

    def __call__(self) -> None:
        folder = CampaignFolder(self.folder)
        plan = folder.plan
        alone = plan.changed(models=(plan.model(self.model),), workers=1)
        carry_out(LocalEngine(alone, folder), job=self.name)

    def checkpoint(self) -> Any:
        """Return what submitit puts back in the queue when the job reaches its time limit or is preempted.

        It is the same job, since the answers of the unit in progress are kept.
        """
        from submitit.helpers import DelayedSubmission

        folder = CampaignFolder(self.folder)
        for unit, claim in read_queue(folder, 0, self.model).claims.items():
            if claim.worker.startswith(f"{self.name}-"):
                record_loss(folder, unit, claim, PUT_BACK)
        return DelayedSubmission(self)


def executor(folder: Path, cluster: str, parameters: Mapping[str, Any], gpus: int) -> Any:
    """Return a submitit executor for workers that need so many GPUs.

    Raises ValueError if there is no Slurm here, or for a parameter that submitit does not know or that would make more
    of a job than one process, the worker.

    parameters: the plan's `slurm:`, names of sbatch (`partition`) or of submitit (`timeout_min`, `slurm_partition`)
    """
    import submitit

    for name in parameters:
        if name.removeprefix(f"{CLUSTER}_") in OF_ONE_PROCESS:
            raise ValueError(
                f"slurm has {name!r}, but a job is one process on one node, whose limit is given in minutes as "
                "timeout_min; use more jobs with `workers`, and more GPUs for each with the model's `gpus`"
            )
    try:
        made = submitit.AutoExecutor(folder, cluster, **{f"{cluster}_max_num_timeout": REQUEUES})
    except RuntimeError as error:
        raise ValueError(
            "--engine slurm finds no srun on this machine; run it where jobs of the cluster are submitted, or with "
            "--address local"
        ) from error
    merged = {"gpus_per_node": gpus or None, **JOB_DEFAULTS, **parameters}
    prefixed = (*FOR_EVERY_CLUSTER, *(name for name in merged if name.startswith((f"{CLUSTER}_", f"{THIS_MACHINE}_"))))
    try:
        made.update_parameters(**{name if name in prefixed else f"{CLUSTER}_{name}": merged[name] for name in merged})
    except (NameError, AssertionError, TypeError, ValueError) as error:
        raise ValueError(
            f"slurm is {brief(dict(parameters))}, which submitit refuses ({str(error).splitlines()[0]})"
        ) from error
    return made


def queued() -> set[str] | None:
    """Return the ids of this user's jobs that Slurm has in its queue: waiting, running or ending.

    None is returned if it does not answer. It is one question for all jobs, which clusters without accounting answer,
    too.
    """
    command = ["squeue", "--noheader", "--array", f"--user={getpass.getuser()}", "--format=%i"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return set(answer.stdout.split()) if answer.returncode == 0 else None


def local_processes(job: Any) -> list[psutil.Process]:
    """Return the processes of a job on this machine, whichever process has submitted it.

    submitit has only those that this process submitted.
    """
    with suppress(psutil.NoSuchProcess):
        controller = psutil.Process(int(job.job_id))
        if controller.status() != psutil.STATUS_ZOMBIE and CONTROLLER in controller.cmdline():
            return [controller, *controller.children(recursive=True)]
    return []


def is_here(handle: Any) -> bool:
    """Return whether a job is one of this machine."""
    import submitit

    return isinstance(handle, submitit.LocalJob)


def has_ended(handle: Any, in_queue: set[str] | None) -> bool:
    """Return whether a job has ended, in whatever way.

    in_queue: ids of the jobs that Slurm has; None if it was not asked
    """
    if is_here(handle):
        return bool(handle.done()) and not local_processes(handle)
    return handle.paths.result_pickle.exists() or (in_queue is not None and handle.job_id not in in_queue)


def why_ended(job: Any) -> str | None:
    """Return why a job has ended, as the end of a sentence about its worker; None if it came to its end."""
    from submitit.core.utils import pickle_load

    result, log = job.paths.result_pickle, job.paths.stderr
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    reason = DIED
    if result.exists():
        status, report = pickle_load(result)
        if status != FAILED:
            return None
        reason, text = "failed", str(report)
    return f"was lost with its job, which {reason}; it wrote last: {_last_line(text)} See {log}"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return visible(lines[-1]) if lines else "nothing."
