"""What was calibrated, kept as one readable file."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from miue.calibration.false_alarms import FalseAlarms
from miue.calibration.label_sets import SET_SCORES, LabelSets
from miue.calibration.referral import Referral
from miue.calibration.scaling import Scaling
from miue.common.errors import ModelError, StorageError
from miue.common.files import check_format, read_json, write_json

FORMAT = "miue-calibration"
VERSION = 3
FILE = "calibration.json"


class Calibration(BaseModel):
    """Scaling, referral, label sets and out-of-distribution threshold; a part that is None was left out.

    Attributes:
        class_names: name of each class, in the order of the probabilities.
        scaling: the temperature of the probabilities or the evidence.
        referral: which bags go to a human.
        label_sets: which classes are in a bag's set.
        false_alarms: which bags are called out of distribution.
        usual: sorted values of each uncertainty of the bags it was made from, to compare new ones with.
        about: which bags it was made from, for a reader.
        weights_sha256: of the model.safetensors that made the predictions; None where no model of ours did.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    class_names: tuple[str, ...] = Field(min_length=2)
    scaling: Scaling | None = None
    referral: Referral | None = None
    label_sets: LabelSets | None = None
    false_alarms: FalseAlarms | None = None
    usual: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    about: dict[str, Any] = Field(default_factory=dict)
    weights_sha256: str | None = None

    def check_weights(self, weights_sha256: str | None) -> None:
        """Raise where the calibration was made from predictions of other weights than these.

        Args:
            weights_sha256: of the model that predicts; None where it is not known, which is let pass.

        Raises:
            ModelError: other weights.
        """
        if None not in (self.weights_sha256, weights_sha256) and self.weights_sha256 != weights_sha256:
            raise ModelError(
                item="the calibration",
                wanted=f"predictions of the weights that were calibrated (SHA-256 {self.weights_sha256})",
                got=f"predictions of other weights (SHA-256 {weights_sha256})",
                fix="calibrate again with these weights: miue calibrate RUN STORE",
            )

    def save(self, path: Path | str) -> None:
        """Write the calibration to the file ``path``, whole or not at all.

        Raises:
            StorageError: it cannot be written.
        """
        content = {"format": FORMAT, "version": VERSION, "miue": version("miue")}
        write_json(Path(path), {**content, "calibration": self.model_dump(mode="json")})

    @classmethod
    def load(cls, path: Path | str) -> Calibration:
        """Return the calibration in the file ``path``, or in the model folder ``path``.

        Raises:
            StorageError: no calibration there, a damaged one, or a newer format.
        """
        file = Path(path) / FILE if Path(path).is_dir() else Path(path)
        content = read_json(file, what="calibration")
        item = f"calibration {str(file)!r}"
        fix = "update miue, or calibrate again"
        check_format(content, item=item, format_name=FORMAT, version=VERSION, fix=fix)
        try:
            found = cls.model_validate(content.get("calibration"))
        except ValidationError as error:
            problem = error.errors()[0]
            place = ".".join(map(str, problem["loc"]))
            raise _damaged(item, f"{place}: {problem['msg']}") from error
        sets = found.label_sets
        if sets is not None and (sets.score not in SET_SCORES or len(sets.thresholds) != len(found.class_names)):
            raise _damaged(item, f"label sets of score {sets.score!r} with {len(sets.thresholds)} thresholds")
        return found


def _damaged(item: str, got: str) -> StorageError:
    return StorageError(item=item, wanted="the parts that miue writes", got=got, fix="calibrate again")
