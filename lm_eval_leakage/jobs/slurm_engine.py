"""Slurm through submitit: workers are jobs, and those that need as many GPUs are submitted as one array.

Jobs outlive the driver. What submitit was given for each job stays in the plan's folder until the job is known to have
ended, so that a driver that is started again finds it. A job whose driver was killed while submitting it ends by
itself.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import Any

import psutil

from lm_eval_leakage.files import atomic_remove
from lm_eval_leakage.jobs.engines import LOOK_S, JobEngine
from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.plan import Plan
from lm_eval_leakage.jobs.slurm_jobs import (
    CLUSTER,
    JOBS,
    THIS_MACHINE,
    SlurmJob,
    executor,
    has_ended,
    is_here,
    local_processes,
    queued,
    why_ended,
)

ENDING_S = 20.0  # within which a local job ends when its processes are killed
CLUSTER_LOOK_S = 5.0  # between two looks at a folder that the nodes of a cluster share
ASK_S = 60.0  # between two questions to Slurm about jobs that have left no result
NO_LIMIT = 10**6  # jobs; Slurm has its own

logger = logging.getLogger(__name__)


class SlurmEngine(JobEngine):
    """An engine whose workers are in jobs of Slurm.

    Jobs of a cluster outlive the driver: if it is killed or interrupted they go on, and the next driver on the same
    folder takes them over. Those of `--address local`, on this machine, end when the driver is interrupted.

    A model has at most as many jobs as its `workers`, else one; all models together as many as the plan's `workers`,
    else one on this machine.

    address: `local` for submitit's local executor, None for Slurm
    """

    def __init__(self, plan: Plan, folder: CampaignFolder, address: str | None = None) -> None:
        if address not in (None, CLUSTER, THIS_MACHINE):
            raise ValueError(
                f"--address is {address!r}; with --engine slurm give 'local', for jobs on this machine, or none"
            )
        self._cluster = address or CLUSTER
        super().__init__(plan, folder, plan.workers or (1 if self._is_local else NO_LIMIT))
        self.minutes = None  # a job stops its own worker
        self._place = folder.path.absolute() / JOBS
        every = sorted({model.gpus for model in plan.models})
        self._executors = {gpus: executor(self._place, self._cluster, plan.slurm, gpus) for gpus in every}
        self._new: list[SlurmJob] = []  # to be submitted together
        self._handles: dict[str, Any] = {}  # submitit's, of jobs that are not known to have ended
        self._last_asked = time.monotonic()

    @property
    def _is_local(self) -> bool:
        return self._cluster == THIS_MACHINE

    @property
    def description(self) -> str:
        return "submitit on this machine" if self._is_local else "Slurm through submitit"

    def __enter__(self) -> SlurmEngine:
        """Take over the jobs of an earlier driver."""
        import submitit
        from submitit.helpers import DelayedSubmission

        for file in sorted(self._place.glob("*_submitted.pkl")):
            job = DelayedSubmission.load(file).function
            kind = submitit.LocalJob if job.cluster == THIS_MACHINE else submitit.SlurmJob
            job_id = file.name.removesuffix("_submitted.pkl")
            self.workers[job.name], self._handles[job.name] = job.model, kind(self._place, job_id)
            logger.info("job %s of an earlier driver, for %s", job_id, job.model)
        return self

    def __exit__(self, *error: Any) -> None:
        """End the jobs on this machine, since Ctrl-C does not stop them all; log what becomes of the others."""
        ids = {handle.job_id.partition("_")[0] for handle in self._handles.values() if not is_here(handle)}
        if ids:
            logger.warning(
                "the jobs go on; start the same command again to watch them, or end them with: scancel %s",
                " ".join(sorted(ids)),
            )
        for name, handle in [*self._handles.items()]:
            if is_here(handle):
                self.stop(name)
        self.workers.clear()
        self._handles.clear()
        self._new.clear()

    def most_of(self, model: str) -> float:
        return self.plan.model(model).workers or 1

    def start(self, model: str, name: str) -> None:
        self._new.append(SlurmJob(self.folder.path.absolute(), model, name, self._cluster))
        self.workers[name] = model

    def ended(self) -> Mapping[str, str | None]:
        """Return the workers that have ended. Slurm is asked once a minute about jobs that have left no result."""
        self._submit()
        time.sleep(LOOK_S if self._is_local else CLUSTER_LOOK_S)
        in_queue = None
        is_on_cluster = any(not is_here(handle) for handle in self._handles.values())
        if is_on_cluster and time.monotonic() - self._last_asked > ASK_S:
            in_queue, self._last_asked = queued(), time.monotonic()
        reasons = {}
        for name, handle in [*self._handles.items()]:
            if has_ended(handle, in_queue):
                reasons[name] = why_ended(handle)
                self._forget(name)
        return reasons

    def stop(self, name: str) -> None:
        self._new = [job for job in self._new if job.name != name]
        handle = self._handles.get(name)
        if handle is not None and not is_here(handle):
            handle.cancel(check=False)
        elif handle is not None:
            processes = local_processes(handle)
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(processes, timeout=ENDING_S)
            handle.done()  # or its process would stay behind as a zombie
        self._forget(name)

    def _submit(self) -> None:
        """A driver that is a job itself submits as if it were none: its own Slurm variables would be those of its
        jobs."""
        from submitit.helpers import clean_env

        configuration = {name: value for name, value in os.environ.items() if name == "SLURM_CONF"}
        for gpus, to in self._executors.items():
            jobs = [job for job in self._new if self.plan.model(job.model).gpus == gpus]
            with clean_env() if "SLURM_JOB_ID" in os.environ else nullcontext():
                os.environ.update(configuration)
                handles = to.submit_array(jobs) if jobs else []
            for job, handle in zip(jobs, handles, strict=True):
                self._handles[job.name] = handle
                logger.info("job %s of %s", handle.job_id, job.model)
        self._new.clear()

    def _forget(self, name: str) -> None:
        del self.workers[name]
        if name in self._handles:
            atomic_remove(self._handles.pop(name).paths.submitted_pickle)
