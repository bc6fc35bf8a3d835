"""Carries out a campaign with Ray: actors that hold one model each and take its units one after another."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lm_eval_leakage.campaign.campaign_folder import CampaignFolder
from lm_eval_leakage.campaign.engines import Begun, Tell
from lm_eval_leakage.campaign.plan_settings import CampaignPlan
from lm_eval_leakage.campaign.ray_cluster import check_nodes, connected, largest, marked, total
from lm_eval_leakage.campaign.ray_crew import PLACE_S, RayCrew
from lm_eval_leakage.campaign.ray_worker import Errand, WorkerMaker
from lm_eval_leakage.campaign.unit_queue import UnitQueue
from lm_eval_leakage.campaign.units import Unit

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RayEngine:
    """address: of a Ray cluster; None takes RAY_ADDRESS, else starts Ray on this machine until the campaign ends
    maker: see `Errand`
    """

    plan: CampaignPlan
    folder: CampaignFolder
    address: str | None = None
    maker: WorkerMaker | None = None

    @property
    def description(self) -> str:
        return f"ray, {self.address or 'this machine'}"

    def carry_out(self, units: Sequence[Unit], tell: Tell, begun: Begun) -> None:
        """As `Engine.carry_out` says; raises ValueError if the cluster cannot be used."""
        with connected(self.address) as is_own, marked(self.folder.path.absolute()) as mark:
            check_nodes(mark)
            self._warn_of_gpus()
            errand = Errand(self.plan, mark.parent, str(mark), str(Path.cwd()), self.maker)
            crew = RayCrew(errand, self.folder, UnitQueue(units, self.plan), tell, begun, 0.0 if is_own else PLACE_S)
            try:
                crew.work()
            finally:
                crew.leave()

    def _warn_of_gpus(self) -> None:
        there, most = total("GPU"), largest("GPU")
        if there and not any(model.gpus for model in self.plan.models):
            logger.warning(
                "no model of the plan asks for GPUs, so that Ray reserves none of its %d for workers; add `gpus: 1` "
                "to each model that needs one",
                there,
            )
        for model in self.plan.models:
            if model.gpus > most:
                logger.warning("%s needs a node with %d GPUs, and the largest has %d", model.name, model.gpus, most)
