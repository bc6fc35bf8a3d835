"""Units of a campaign: what one worker does at a time, one model's run or audit of one task, or a shard of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lm_eval_leakage.campaign.plan_settings import CampaignPlan

RUN = "run"  # the kind of an ordinary run; other kinds are suffixes of audits
SHARD_ID = re.compile(r"(\d+)of(\d+)")


@dataclass(frozen=True, order=True)
class Unit:
    """model: its name in the plan
    kind: `run`, or the suffix of an audit
    shard: of `n_shards`, from 0
    """

    model: str
    task: str
    kind: str
    shard: int
    n_shards: int

    @property
    def id(self) -> str:
        """Such as `smol/arc_challenge/leakage_perm/0of4`: its folder below `runs` and `work`."""
        return f"{self.model}/{self.task}/{self.kind}/{self.shard}of{self.n_shards}"

    @classmethod
    def of_id(cls, text: str) -> Unit:
        """Raises ValueError for anything that is not an id."""
        model, task, kind, shard = text.split("/") if text.count("/") == 3 else ("", "", "", "")
        match = SHARD_ID.fullmatch(shard)
        if match is None or not (model and task and kind):
            raise ValueError(f"{text!r} is not the id of a unit; write it as MODEL/TASK/KIND/0of1")
        return cls(model, task, kind, int(match[1]), int(match[2]))

    @property
    def asked(self) -> str:
        """The task or audit of lm_eval that it runs."""
        return self.task if self.kind == RUN else f"{self.task}_{self.kind}"

    @property
    def metadata(self) -> dict[str, object]:
        """What `--metadata` says of its shard; nothing if it is the whole."""
        return {"shard": f"{self.shard}/{self.n_shards}"} if self.n_shards > 1 else {}


def units_of(plan: CampaignPlan) -> list[Unit]:
    """All units, of each model together, and of each task together."""
    kinds = ([RUN] if plan.runs else []) + list(plan.audits)
    return [
        Unit(model.name, task, kind, shard, plan.shards)
        for model in plan.models
        for task in plan.tasks
        for kind in kinds
        for shard in range(plan.shards)
    ]
