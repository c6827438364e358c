"""A finished study, read back from its folder: rows, and what the figures need from the stored predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regmixup import predictions
from regmixup.evaluation.calibration import Reliability, reliability
from regmixup.evaluation.entropy_profile import EntropyProfile, entropy_profile
from regmixup.evaluation.scores import SCORES
from regmixup.report.tables import paper_score
from regmixup.storage import read_rows, read_table
from regmixup.types import Predictions, Row


@dataclass(frozen=True)
class Results:
    """study: the contents of study.json. rows: all of the study's rows."""

    folder: Path
    study: dict[str, Any]
    rows: list[Row]

    @classmethod
    def open(cls, folder: str | Path) -> Results:
        """Read a study folder."""
        folder = Path(folder)
        for name in ("study.json", "rows.csv"):
            if not (folder / name).is_file():
                raise ValueError(f"{folder} is not the folder of a finished study: it has no {name}")
        study = read_table(folder / "study.json")
        wanted = {"title", "about", "recipe", "seeds", "evaluate", "runs"}
        if not wanted <= study.keys():
            raise ValueError(f"{folder / 'study.json'} is damaged: it lacks {', '.join(sorted(wanted - study.keys()))}")
        return cls(folder, study, read_rows(folder / "rows.csv"))

    @property
    def methods(self) -> list[str]:
        """The methods with at least one finished run."""
        return list(dict.fromkeys(run["method"] for run in self.study["runs"]))

    @property
    def test(self) -> str:
        return str(self.study["evaluate"]["test"])

    @property
    def ood(self) -> list[str]:
        return list(self.study["evaluate"]["ood"])

    def run_folders(self, method: str) -> list[Path]:
        """The folders of a method's runs, one per seed."""
        return [self.folder.parent / run["folder"] for run in self.study["runs"] if run["method"] == method]

    def run_json(self, method: str, name: str) -> list[dict[str, Any]]:
        """A JSON file of each of a method's runs."""
        return [read_table(folder / name) for folder in self.run_folders(method)]

    def predictions(self, method: str, dataset: str) -> list[Predictions]:
        """Stored predictions, one per seed."""
        name = predictions.file_name(dataset)
        return [predictions.load(folder / "predictions" / name) for folder in self.run_folders(method)]

    def _temperatures(self, method: str) -> list[float]:
        """The fitted temperature of each seed, in the order of the runs."""
        return [row.value for row in self.rows if row.method == method and row.metric == "temperature"]

    def reliability(self) -> dict[str, dict[str, Reliability]]:
        """Reliability of each method on the test set, all seeds pooled, without and with temperature."""
        found: dict[str, dict[str, Reliability]] = {}
        for method in self.methods:
            members = self.predictions(method, self.test)
            labels = torch.cat([p.labels for p in members])

            def pooled(
                scale: Callable[[int], float], members: list[Predictions] = members, labels: torch.Tensor = labels
            ) -> Reliability:
                probs = [(p.logits.double() / scale(i)).softmax(dim=1) for i, p in enumerate(members)]
                return reliability(torch.cat(probs), labels)

            found[method] = {
                "none": pooled(lambda _: 1.0),
                "temperature": pooled(self._temperatures(method).__getitem__),
            }
        return found

    def scores(self) -> dict[str, dict[str, np.ndarray]]:
        """Each method's OOD score (the paper's choice) on the test set and every OOD set, all seeds pooled."""
        return {
            method: {
                name.removesuffix("/test"): torch.cat(
                    [SCORES[paper_score(method)](p.logits) for p in self.predictions(method, name)]
                ).numpy()
                for name in (self.test, *self.ood)
            }
            for method in self.methods
        }

    def entropy_profiles(self) -> dict[str, EntropyProfile]:
        """Entropy over lambda for each method, counts summed over seeds."""
        found = {}
        for method in self.methods:
            profiles = [entropy_profile(p) for p in self.predictions(method, self.study["evaluate"]["profile"])]
            found[method] = replace(
                profiles[0],
                counts=torch.stack([p.counts for p in profiles]).sum(dim=0),
                mean=torch.stack([p.mean for p in profiles]).mean(dim=0),
            )
        return found

    def alphas(self) -> dict[str, float]:
        """Beta's parameter of every method that mixes pairs of images; AugMix's alpha is of something else."""
        objectives = {method: self.run_json(method, "config.json")[0]["objective"] for method in self.methods}
        return {
            method: float(fields["alpha"]) for method, fields in objectives.items() if {"alpha", "lam"} <= fields.keys()
        }
