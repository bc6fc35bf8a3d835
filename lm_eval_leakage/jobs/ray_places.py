"""Places for workers: resources of the nodes of a Ray cluster, and the part that each worker takes."""

from __future__ import annotations

from collections.abc import Iterator

from lm_eval_leakage.jobs.plan import Plan, PlanModel


def amounts(resource: str) -> list[float]:
    """Return the amount of a resource on each node that workers may be placed on: a head without CPUs holds none."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [float(node.get(resource, 0)) for node in nodes if node.get("CPU", 0) >= 1]


def cpus_of_worker(plan: Plan, model: str) -> float:
    """Return how many CPUs a worker takes. Without a GPU, workers share the CPUs if their number is limited, else each
    has one."""
    most, cpus = plan.model(model).workers or plan.workers, amounts("CPU")
    if plan.model(model).gpus or most is None:
        return 1.0
    return max(1.0, min(sum(cpus) // most, max(cpus, default=1.0)))


def why_no_place(model: PlanModel) -> str | None:
    """Return why no node can hold a worker of a model; None if one can."""
    gpus = amounts("GPU")
    if not gpus:
        return "the cluster has no node left"
    if model.gpus > max(gpus):
        return f"{model.key} needs a node with {model.gpus} GPUs, and the largest has {max(gpus):g}"
    return None


def warnings_of_gpus(plan: Plan) -> Iterator[str]:
    """Yield a sentence if no model of the plan has GPUs that are there, and for each model that needs more."""
    n_gpus = sum(amounts("GPU"))
    if n_gpus and not any(model.gpus for model in plan.models):
        yield (
            f"no model of the plan asks for GPUs, so that Ray reserves none of its {n_gpus:g} for workers; add "
            "`gpus: 1` to each model that needs one"
        )
    for model in plan.models:
        if reason := why_no_place(model):
            yield reason
