"""``miue data pack`` and ``miue data split``: from files and tables to a store, and to splits."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from miue.cli.bags import open_bags, say_left_out
from miue.cli.flags import takes_settings
from miue.cli.options import AsJson, Bags, Overwrite, Quiet
from miue.cli.outputs import keeps_inputs, locks_out
from miue.common.folder_kinds import STORE
from miue.common.outputs import refuse_existing
from miue.common.text import OUTPUT, plural, say, show_result

if TYPE_CHECKING:
    from miue.bags import BagDataset
    from miue.settings import LoadSettings, SplitSettings

LOAD = "miue.settings:LoadSettings"


@takes_settings(load=LOAD)
@keeps_inputs
def data_pack(
    bags: Bags,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Store to write.", rich_help_panel=OUTPUT)],
    load: LoadSettings,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Pack feature files and labels into one fast store.

    The files' format is detected. With labels and without splits, bags are split by patient and class into train,
    validation and test. An interrupted run continues with the same command; everything written is read back and
    compared.

    Example: miue data pack features_uni_v2 --labels labels.csv --out store
    """
    from miue.io import draw_split, pack
    from miue.settings import VALIDATION_SHARE

    refuse_existing(out, STORE, overwrite=overwrite)
    opened = open_bags(bags, load, progress=not quiet)
    counted_later = load.skip_bad  # which bags are used is known once their values are read
    say_left_out(replace(opened, label_columns=None) if counted_later else opened)

    def with_split(kept: BagDataset) -> BagDataset:
        nonlocal opened
        opened = replace(opened, bags=kept)
        if load.splits is None:
            opened = draw_split(opened, VALIDATION_SHARE)
        return opened.bags

    packed = pack(
        opened.bags,
        out,
        made_by={"command": shlex.join(["miue", *sys.argv[1:]]), "folder": str(bags)},
        left_out=opened.left_out,
        skip_bad=load.skip_bad,
        overwrite=overwrite,
        progress=not quiet,
        with_split=with_split,
    )
    failed = packed.left_out[len(opened.left_out) :]
    for one in failed:
        say(f"left out: {one.bag}: {one.reason}", err=True)
    if counted_later and opened.labels:
        say(opened.labels, err=True)
    missing = len(packed.left_out)
    listed = f"; {missing:,} left out, listed in {out / 'left_out.csv'}" if missing else ""
    already = f" ({packed.resumed:,} by an earlier run)" if packed.resumed else ""
    facts = {"bags": packed.bags, "instances": packed.instances, "left_out": missing, "out": str(out)}
    sentence = (
        f"{plural(packed.bags, 'bag')}{already} with {plural(packed.instances, 'instance')} packed: {out}{listed}"
    )
    show_result(facts, sentence, as_json)
    if opened.note:
        say(opened.note, err=as_json)


@takes_settings(load=LOAD, settings="miue.settings:SplitSettings", without=("splits", "fold"))
@keeps_inputs
@locks_out
def data_split(
    bags: Bags,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="CSV to write: bag_id, patient, label, fold_0, …", rich_help_panel=OUTPUT
        ),
    ],
    load: LoadSettings,
    settings: SplitSettings,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Draw train, validation and test bags by patient.

    No patient is in two parts, and classes have the same shares in all parts. Pass the file as --splits FILE
    --fold K to train, predict and data pack, or as --splits FILE to cross-validate. If you pass --skip-bad there,
    pass it here as well: all values are then read, and only usable bags are split.

    Example: miue data split features --labels labels.csv --folds 5 --out splits.csv
    """
    from miue.io import make_folds, make_split, write_splits

    refuse_existing(out, overwrite=overwrite)
    opened = open_bags(bags, load, progress=not quiet, check_values=load.skip_bad)
    data = opened.bags
    shares = {"validation": settings.validation, "calibration": settings.calibration, "seed": settings.seed}
    if settings.folds == 1:
        drawn = make_split(data, test=settings.test, **shares)  # type: ignore[arg-type]
    else:
        drawn = make_folds(data, settings.folds, **shares)  # type: ignore[arg-type]
    write_splits(out, drawn, data)
    say_left_out(opened)
    assigned = drawn.assign(data)
    parts = ("train", "validation", *(["calibration"] if settings.calibration else []), "test")
    counts = ", ".join(f"{name} {assigned.splits.count(name):,}" for name in parts)
    patients = f" of {plural(len(set(data.patients)), 'patient')}" if data.patients else ""
    facts = {"folds": len(drawn), "bags": len(data), "first_fold": {n: assigned.splits.count(n) for n in parts}}
    without = assigned.splits.count("")
    counts += f"; without a label and in no part {without:,}" if without else ""
    sentence = f"{plural(len(drawn), 'fold')} of {plural(len(data), 'bag')}{patients}: {out} ({counts})"
    show_result({**facts, "out": str(out)}, sentence, as_json)
