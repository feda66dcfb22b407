"""How bags are read, split and grouped."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, InstanceOf, Strict

from miue.common.errors import ConfigError
from miue.common.settings import Location, Names, Settings, for_python
from miue.common.text import LABELS, RUNNING


class ReadFile:
    """What was read of a file, which may be passed in place of its path."""


VALIDATION_SHARE = 0.15
"""Share of the bags that are validated on, where a split is drawn."""


class LoadSettings(Settings):
    """What is said of bags beside the path at which they are: labels, splits, columns, and how files are read."""

    heading = LABELS

    labels: Location | InstanceOf[ReadFile] | None = Field(
        default=None,
        description="Label table of the bags (CLAM, Patho-Bench, MIREL, STAMP), or folder of <bag>.npy "
        "(torchmil); ids are text.",
    )
    label_column: str | None = Field(default=None, description="Column of the label, if not recognized.")
    id_column: str | None = Field(default=None, description="Column of the bag's name, if not recognized.")
    task: Literal["class", "multi-label", "ordinal", "regression", "survival"] = Field(
        default="class",
        description="What labels are: classes; several at once; grades in order (--classes); numbers; or times, "
        "with an event or without.",
    )
    time_column: str | None = Field(default=None, description="Column of the time, of task survival.")
    event_column: str | None = Field(
        default=None, description="Column of the event, of task survival: 1, or 0 where observation ended."
    )
    intervals: int | None = Field(
        default=None,
        ge=2,
        description="Intervals of a number or time to predict; by default 2 to 10 by the number of labels.",
    )
    covariates: Names = Field(
        default=(),
        description="Column of the label table that a model reads beside the features, such as age or sex: "
        "numbers, or a category.",
    )
    patient_column: str | None = Field(
        default=None, description="Column of the patient (case_id, patient_id, PATIENT), if not recognized."
    )
    patients: Literal["barcodes", "none"] = Field(
        default="barcodes",
        description="Patients where no column states them: TCGA barcodes that names begin with, or none.",
    )
    bag_per: str | None = Field(
        default=None,
        description="What a bag is of: patient (all slides of a patient are one bag), another column of the label "
        "table, or slide; by default as the model was trained, else slide.",
    )
    slide_table: Location | None = Field(
        default=None,
        description="STAMP's table of PATIENT and FILENAME, if the label table has one row per patient.",
    )
    classes: Names = Field(
        default=(),
        description="Classes in order; the first is the negative one. Of task multi-label, the labels: columns of "
        "the label table, or what its cells list.",
    )
    splits: Location | InstanceOf[ReadFile] | None = Field(
        default=None,
        description="Splits (CLAM splits_k.csv, Patho-Bench, MIREL .npz, 'miue data split'), or none.",
    )
    fold: int = Field(default=0, ge=0, description="Number of the fold of the splits to use, from 0.")
    instance_labels: Location | None = Field(
        default=None,
        description="Table bag_id, instance_label, and instance (from 0) or x, y (level-0 pixels), or folder of "
        "<bag>.npy; for evaluation only.",
    )
    microns_per_pixel: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="µm per level-0 pixel, for files with coords in µm (STAMP).",
    )
    feature_key: str = Field(
        default="",
        description="Table of features to read from lazyslide stores that have several, such as uni_tiles.",
    )
    features: Names = Field(
        default=(),
        description="Feature columns of a table of instances, names or patterns such as 'f_*'; by default those "
        "that the model was trained on or, without one, all without a special meaning.",
    )
    more_features: Annotated[tuple[Location, ...], Strict(False)] = Field(
        default=(),
        description="Folder of the same bags with features of another patch encoder, of the same patches: a model "
        "reads all encoders, in the order in which they are named.",
    )
    skip_bad: bool = Field(
        default=False,
        description="Leave out bags that cannot be used; list them.",
        json_schema_extra={"heading": RUNNING},
    )
    columns: dict[str, str] = for_python({}, "Names of columns by what they mean: bag_id, label, patient, x, y, …")
    instance_shape: Annotated[tuple[int, ...], Strict(False)] | None = for_python(
        None, "Shape that a model takes; else that of most files of a folder."
    )
    coords_for: str = for_python(
        "", "What needs coords, so that bags without them cannot be used; nothing if empty."
    )
    check_values: bool = for_python(
        False, "Read all features once, to detect what is not finite before a split is drawn."
    )
    validation_share: float | None = for_python(
        None,
        "Draw a split by patient and class with this share to validate on, where the bags have labels and no "
        "split.",
    )

    @property
    def has_labels(self) -> bool:
        """Whether labels, splits or classes are said beside the bags."""
        said = (self.labels, self.slide_table, self.splits, self.instance_labels, self.bag_per)
        return bool(self.classes) or any(one is not None for one in said)

    @property
    def named_columns(self) -> dict[str, str]:
        """The columns that are named, by what they mean."""
        named = {
            "bag_id": self.id_column,
            "label": self.time_column or self.label_column,
            "event": self.event_column,
            "patient": self.patient_column,
        }
        return {meaning: name for meaning, name in named.items() if name is not None} | self.columns


class SplitSettings(Settings):
    """Which splits are drawn."""

    folds: int = Field(
        default=1, ge=1, description="How many folds to draw, each bag tested once; 1 for a single split."
    )
    test: float = Field(default=0.2, ge=0.02, le=0.5, description="Share of test bags of a single split.")
    validation: float = Field(
        default=VALIDATION_SHARE, ge=0, le=0.5, description="Share of the other bags for validation."
    )
    calibration: float = Field(
        default=0.0, ge=0, le=0.5, description="Share of the remaining bags to reserve for miue calibrate."
    )
    seed: int = Field(default=42, ge=0, description="Random seed of the split.")


class GroupSettings(Settings):
    """Which table names the group of each bag, and in which column."""

    heading = LABELS

    groups: Location | None = Field(
        default=None,
        description="Table of bags or patients and a column of groups (hospital, scanner): also evaluate each "
        "group by itself.",
    )
    group_column: str | None = Field(default=None, description="Column of the groups in their table.")
    id_column: str | None = Field(
        default=None, description="Column of the bag's name in the table of groups, if not recognized."
    )

    def check(self) -> None:
        """Raise unless table and column are named together, or neither.

        Raises:
            ConfigError: one of them alone.
        """
        if self.groups is not None and self.group_column is None:
            from miue.common.tables import read_header

            columns = ", ".join(map(repr, read_header(self.groups)))
            raise ConfigError(
                item="groups",
                wanted="group_column=NAME with it",
                got=f"{str(self.groups)!r} alone, with the columns {columns}",
                fix="name the column of the groups",
            )
        for name in ("group_column", "id_column"):
            if self.groups is None and (value := getattr(self, name)) is not None:
                raise ConfigError(
                    item=name,
                    wanted="groups=TABLE with it",
                    got=f"{value!r} alone",
                    fix="name the table of groups",
                )
