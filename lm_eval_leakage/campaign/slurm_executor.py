"""The plan's `slurm:` as submitit takes it, and the jobs of submitit by their ids."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from lm_eval_leakage.texts import brief

CLUSTER, THIS_MACHINE = "slurm", "local"  # as submitit names its executors
FOR_EVERY_CLUSTER = ("name", "timeout_min", "mem_gb", "cpus_per_task", "gpus_per_node", "stderr_to_stdout")
OF_ONE_PROCESS = ("nodes", "tasks_per_node", "ntasks_per_node", "time")
JOB_DEFAULTS: Mapping[str, Any] = {"name": "campaign", "timeout_min": 240}  # submitit's own limit is 5 minutes
# How often submitit puts a job back in the queue that has reached its time limit: the retries of units decide instead.
REQUEUES = 1_000
ENDING_S = 20.0  # within which a local job ends when its process is killed
CONTROLLER = "submitit.local._local"  # the module that a local job's process runs


def cluster_of(address: str | None) -> str:
    """Raises ValueError for an address that is neither `slurm` nor `local`."""
    if address not in (None, CLUSTER, THIS_MACHINE):
        raise ValueError(
            f"--address is {address!r}; with --engine slurm give 'local', for jobs on this machine, or none"
        )
    return address or CLUSTER


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
    own = {"gpus_per_node": gpus or None, **JOB_DEFAULTS, **told}
    try:
        made.update_parameters(**{_name(name): value for name, value in own.items()})
    except (NameError, AssertionError, TypeError, ValueError) as error:
        raise ValueError(
            f"slurm is {brief(dict(told))}, which submitit refuses ({str(error).splitlines()[0]})"
        ) from error
    return made


def refuse_several_processes(told: Mapping[str, Any]) -> None:
    """Raises ValueError for a parameter that would make more of a job than one process, the worker."""
    for name in told:
        plain = name.removeprefix(f"{CLUSTER}_")
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

    return (submitit.LocalJob if cluster == THIS_MACHINE else submitit.SlurmJob)(folder, job_id)


@contextmanager
def outside_of_a_job() -> Iterator[None]:
    """A driver that is a job itself submits as if it were none: its own Slurm variables would be those of its jobs."""
    from submitit.helpers import clean_env

    if "SLURM_JOB_ID" not in os.environ:
        yield
        return
    kept = {name: os.environ[name] for name in ("SLURM_CONF",) if name in os.environ}
    with clean_env():
        os.environ.update(kept)
        yield


def queued() -> set[str] | None:
    """The ids of this user's jobs that Slurm has in its queue: waiting, running or ending; None if it does not answer.
    One question for all jobs, and one that clusters without accounting answer, too."""
    command = ["squeue", "--noheader", "--array", f"--user={getpass.getuser()}", "--format=%i"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return set(asked.stdout.split()) if asked.returncode == 0 else None


def has_ended(job: Any, in_queue: set[str] | None = None) -> bool:
    """Whether a job has ended in any way: it has left a result, or Slurm no longer has it in the queue.

    in_queue: what Slurm says now; None if it was not asked
    """
    if _is_local(job):
        return bool(job.done()) and not _is_local_job(int(job.job_id))
    return job.paths.result_pickle.exists() or (in_queue is not None and job.job_id not in in_queue)


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """What is started in the block does not hear Ctrl-C, at which the driver ends it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_local_job(job: Any) -> None:
    """Ends a job of this machine, whichever process has submitted it, and waits until it has ended. Its worker ends
    when the job does."""
    if _is_local_job(int(job.job_id)):
        controller = psutil.Process(int(job.job_id))
        for process in controller.children() or [controller]:
            process.kill()
    given_up = time.monotonic() + ENDING_S
    while not has_ended(job) and time.monotonic() < given_up:
        time.sleep(0.05)


def _is_local_job(process_id: int) -> bool:
    """submitit knows only the local jobs of its own process."""
    try:
        process = psutil.Process(process_id)
        return process.status() != psutil.STATUS_ZOMBIE and CONTROLLER in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def _is_local(job: Any) -> bool:
    import submitit

    return isinstance(job, submitit.LocalJob)


def _name(name: str) -> str:
    is_known = name in FOR_EVERY_CLUSTER or name.startswith((f"{CLUSTER}_", f"{THIS_MACHINE}_"))
    return name if is_known else f"{CLUSTER}_{name}"
