"""What was calibrated, kept as one readable file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from miue.bags.classes import ClassNames
from miue.calibration.class_mix import ClassMix
from miue.calibration.compared import refuse_other_weights
from miue.calibration.covariate_shift import CovariateShift
from miue.calibration.deferral import BELOW_THRESHOLD, Deferral
from miue.calibration.false_alarms import FalseAlarms
from miue.calibration.instance_flags import InstanceFlags, describe_negative_class
from miue.calibration.prediction_sets import PredictionSets
from miue.calibration.scaling import Scaling
from miue.calibration.time_bounds import TimeBound
from miue.common.errors import first_few
from miue.common.records import JsonFormat, list_in_model
from miue.common.text import PrintsAsTable, ResultTable, plural
from miue.common.values import checked
from miue.predictions import Provenance

CALIBRATION = "calibration.json"
AGAIN = "calibrate again"
PARTS = {
    "scaling": "scaling",
    "deferral": "deferral",
    "prediction_sets": "prediction sets",
    "time_bound": "bound of the time",
    "false_alarms": "out of distribution",
    "instances": "instances",
}
"""What a part, each with what was fitted and its ``promise`` in words, is called in tables."""
FORMAT = JsonFormat("miue-calibration", 7, "calibration", "calibration", AGAIN)


class CalibrationBags(BaseModel):
    """Which bags a calibration was made from.

    Attributes:
        path: of the bags, or of the table of their predictions.
        split: which of them.
        fingerprint: of these, as ``fingerprint`` of ``miue.bags`` takes it.
        bags: how many were counted.
        of_class: how many of each class.
        patients: how many patients they are of, None where patients are not known.
        left_out: further bags of these patients, which were not counted.
        caveat: why the guarantees do not hold exactly, "" where they do.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str | None = None
    split: str | None = None
    fingerprint: str | None = None
    bags: int | None = None
    of_class: tuple[int, ...] = ()
    patients: int | None = None
    left_out: int = 0
    caveat: str = ""

    def describe_missing_patients(self, patients: Sequence[str] | np.ndarray | None, count: int) -> str:
        """Return what follows if new bags state no patient where calibrated patients had several bags, else "".

        Args:
            patients: whose each new bag is, "" where unknown; None where none is known.
            count: of the new bags.
        """
        several = self.patients is not None and (self.bags or 0) + self.left_out > self.patients
        unknown = count if patients is None else sum(not patient for patient in patients)
        if not several or not unknown:
            return ""
        return (
            f"No patient is stated for {unknown:,} of {plural(count, 'bag')}, and patients of the calibration "
            "have several bags. Each counts as a patient of its own, so that a false alarm is likelier than "
            "stated if some are of one patient. State patients by a table of labels."
        )


class Calibration(PrintsAsTable, BaseModel):
    """Scaling, deferral, prediction sets, out-of-distribution threshold, flags; a part that is None was left out.

    Attributes:
        class_names: name of each class, in the order of the probabilities.
        scaling: the temperature of the probabilities or the evidence.
        deferral: which bags are deferred to a person.
        prediction_sets: which classes are in a bag's set.
        false_alarms: which bags are called out of distribution.
        instances: which instances are flagged.
        time_bound: when an event comes at the earliest.
        usual: sorted values of each uncertainty of the bags that it is for, to compare new ones with: those it was
            made from, or with ``covariate_shift`` the new ones.
        class_mix: classes of these bags, to compare the mix of new ones with.
        made_from: which bags it was made from.
        covariate_shift: for which new bags it was weighted; None where it is for bags like those it was made from.
        scaling_left_out: why no temperature was fitted although one was asked for, "" where one was.
        weights_sha256: of the model.safetensors that made the predictions; None where no model of ours did.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    made_by: ClassVar[str] = "read it: miue.Calibration.load(path)"

    class_names: ClassNames = Field(min_length=2)
    scaling: Scaling | None = None
    deferral: Deferral | None = None
    prediction_sets: PredictionSets | None = None
    false_alarms: FalseAlarms | None = None
    instances: InstanceFlags | None = None
    time_bound: TimeBound | None = None
    usual: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    class_mix: ClassMix | None = None
    made_from: CalibrationBags = CalibrationBags()
    covariate_shift: CovariateShift | None = None
    scaling_left_out: str = ""
    weights_sha256: str | None = None

    @property
    def has_rules_of_bags(self) -> bool:
        """Whether anything but flags of instances was fitted."""
        return any(getattr(self, part) is not None for part in PARTS if part != "instances")

    @property
    def bags_used(self) -> str:
        """How many bags the rules were fitted on, flags of instances on some of them alone; "" if not known."""
        every = "" if self.made_from.bags is None else plural(self.made_from.bags, "bag")
        if self.instances is None:
            return every
        if not self.has_rules_of_bags:
            return self.instances.bags_used
        return ", flags of instances ".join(filter(None, (every, f"from {self.instances.bags_used}")))

    def tables(self) -> tuple[ResultTable]:
        """Return a row for each part: what was fitted, and what it promises."""
        parts = {title: getattr(self, part) for part, title in PARTS.items()}
        rows = [(title, self._fitted(part), part.promise) for title, part in parts.items() if part is not None]
        flags, shift = self.instances, self.covariate_shift
        if shift is None:
            holds = "For bags like these" + ("." if flags is not None else ", and not for instances.")
        else:
            size = f"effective sample size {shift.effective_sample_size:.1f}, clip {shift.clip:g}"
            nll = " The NLL of these bags is weighted, too." if self.scaling is not None else ""
            holds = f"For bags like the {shift.bags:,} new ones, by weights: {size}.{nll}"
        below = [f"From {self.bags_used or '? bags'}. {holds}"]
        if flags is not None:
            below.append(f"Assumed for flags of instances: {flags.assumption}.")
            below += describe_negative_class(self.class_names, flags.negative_class)
        return (ResultTable(("part", "fitted", "promise"), tuple(rows), tuple(below), is_prose=True),)

    def _fitted(self, part: Any) -> str:
        """Return what was fitted in a part, in words."""
        sets = isinstance(part, PredictionSets)
        return part.describe(self.class_names) if sets else str(part.fitted)

    def notes(self) -> list[str]:
        """Return what else to know of the rules, a sentence or several each."""
        made_from, flags = self.made_from, self.instances
        said = []
        if made_from.left_out and self.has_rules_of_bags:
            said.append(
                f"one bag of each of {made_from.patients:,} patients was drawn, as bags of one patient are alike; "
                f"left out: {plural(made_from.left_out, 'further bag')}."
            )
        if flags is not None and flags.left_out:
            said.append(
                f"left out of the flags: {plural(flags.left_out, 'positive bag')} without labels of all "
                "instances, or without a positive one."
            )
        if self.class_mix is not None and self.class_mix.missing and self.has_rules_of_bags:
            names = first_few(self.class_names[label] for label in self.class_mix.missing)
            said.append(
                f"no calibration bag is of class {names}, so that nothing is promised for bags of that class."
            )
        said += self._rare_classes()
        if self.covariate_shift is not None:
            said.append(self.covariate_shift.left_out_in_words())
        if self.scaling_left_out:
            said.append(f"no temperature was fitted: {self.scaling_left_out}.")
        if made_from.caveat:
            said.append(f"{made_from.caveat}.")
        return [note for note in said if note]

    @property
    def warning(self) -> str:
        """Why no bag is accepted, and what would help; "" where some may be accepted."""
        if self.deferral is None or not self.deferral.refused:
            return ""
        pooled = "miue cross-validate --method pooled-logistic or pooled-forest, then miue compare"
        better = f"try a better model ({pooled}) or another measure"
        if BELOW_THRESHOLD in self.deferral.refused:
            better = "compare another score with the out-of-distribution threshold or leave that out, add bags"
        return (
            f"No bag is accepted: {self.deferral.refused}. To accept some, {better}, allow a larger "
            "error, lower the confidence, or leave the deferral out."
        )

    def _rare_classes(self) -> list[str]:
        """Return which classes are so rare that a promise over all bags holds if all of their bags are wrong."""
        sets, deferral = self.prediction_sets, self.deferral
        said = []
        if sets is not None and sets.full == 1:
            said.append(
                "the set of every calibration bag holds all classes, which says nothing: lower the coverage or "
                "choose another kind of prediction sets."
            )
        if sets is not None and not sets.per_class and (rare := self._as_rare_as(sets.error)):
            said.append(
                f"the sets may miss {100 * sets.error:g} % of all labels, which can be all bags of class {rare}; "
                "sets per class promise the coverage for each class."
            )
        if deferral is not None and not deferral.refused and (rare := self._as_rare_as(deferral.max_error)):
            wrong = f"{100 * deferral.max_error:g} % of accepted bags may be wrong"
            said.append(f"{wrong}, which can be all bags of class {rare}.")
        return said

    def _as_rare_as(self, share: float) -> str:
        """Return the classes of at most a share of the calibration bags, with their numbers; "" for none."""
        counts = [] if self.class_mix is None else list(map(sum, self.class_mix.confusion))
        named = zip(self.class_names, counts, strict=False)  # no counts where the bags were weighted
        bags = sum(counts)
        return first_few(f"{name} ({n:,} of {bags:,})" for name, n in named if 0 < n <= share * bags)

    def check_weights(self, weights_sha256: str | None) -> None:
        """Raise where the calibration was made from predictions of other weights than these.

        Args:
            weights_sha256: of the model that predicts; None where it is not known, which is let pass.

        Raises:
            ModelError: other weights.
        """
        refuse_other_weights(self.weights_sha256, weights_sha256, "the predictions")

    def save(self, path: Path | str) -> None:
        """Write the calibration to the file ``path``, whole or not at all; a model in that folder then lists it.

        Raises:
            StorageError: it cannot be written.
        """
        FORMAT.write(Path(path), self)
        if Path(path).name == CALIBRATION:
            list_in_model(Path(path))

    @classmethod
    @checked()
    def load(cls, path: Path | str) -> Calibration:
        """Return the calibration in the file ``path``, or in the model folder ``path``.

        Raises:
            StorageError: no calibration there, a damaged one, or one of another version.
        """
        file = Path(path) / CALIBRATION if Path(path).is_dir() else Path(path)
        return FORMAT.read(file, cls)


def applied_calibration(provenance: Provenance) -> Calibration | None:
    """Return the calibration that decided on predictions, without the values of its bags; None without one."""
    return None if provenance.calibration is None else Calibration.model_validate(provenance.calibration)


def applied_flags(provenance: Provenance) -> InstanceFlags | None:
    """Return the rule that instances were flagged by; None where they were not."""
    calibration = applied_calibration(provenance)
    return None if calibration is None else calibration.instances


def describe_flags(provenance: Provenance) -> str:
    """Return by which rule instances were flagged and what is promised, in words; "" where they were not."""
    rule = applied_flags(provenance)
    return "" if rule is None else f"{rule.fitted}; promised: {rule.promise}"
