"""``miue data make``: bag stores of known data."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from miue.cli.flags import MANY, separate
from miue.cli.options import AsJson, Out, Overwrite, Quiet
from miue.cli.outputs import keeps_inputs, locks_out
from miue.common.errors import ConfigError, unknown_name
from miue.common.folder_kinds import STORE
from miue.common.outputs import refuse_existing
from miue.common.text import plural, show_result

SOURCES = ("digits-bags", "mnist-bags", "cifar10-bags", "gaussian-bags", "musk1-bags", "musk2-bags")
NEED_FILES = {
    "mnist-bags": "mnist.npz or MNIST's idx files",
    "cifar10-bags": "cifar10.npz or CIFAR-10's binary files",
    "musk1-bags": "musk.npz",
    "musk2-bags": "musk.npz",
}


@keeps_inputs
@locks_out
def data_make(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"Example: {', '.join(SOURCES)}.")],
    out: Out,
    source: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of the data's files (all but digits-bags and gaussian-bags)."),
    ] = None,
    ood: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"Images of OOD test bags: fmnist, kmnist (mnist-bags); svhn, dtd (cifar10-bags). {MANY}",
            callback=separate,
        ),
    ] = None,
    ood_ratio: Annotated[float, typer.Option(min=0, max=1, help="Share of OOD instances in each OOD bag.")] = 1.0,
    part: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART",
            help=f"train, validation, test, or calibration (digits-bags); by default all. {MANY}",
            callback=separate,
        ),
    ] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Make a bag store of well-known data.

    digits-bags and gaussian-bags need no files, the others need --source.
    """
    from miue.io import write_store

    refuse_existing(out, STORE, overwrite=overwrite)
    bags = _make_bags(name, source, ood or [], ood_ratio, part, progress=not quiet)
    command = shlex.join(["miue", *sys.argv[1:]])
    write_store(out, bags, made_by={"command": command, "name": name}, overwrite=overwrite)
    facts = {"bags": len(bags), "instances": len(bags.positions), "out": str(out)}
    show_result(
        facts,
        f"{plural(len(bags), 'bag')} with {plural(len(bags.positions), 'instance')} written to {out}",
        as_json,
    )


def _make_bags(
    name: str, source: Path | None, ood: list[str], ratio: float, split: list[str] | None, *, progress: bool
) -> Any:
    if name not in SOURCES:
        raise unknown_name("bags", name, SOURCES)
    known = ["train", "validation", *(["calibration"] if name == "digits-bags" else []), "test"]
    splits = split or known
    for one in splits:
        if one not in known:
            raise unknown_name("part", one, known)
    if name in NEED_FILES:
        if source is None:
            raise ConfigError(
                item=name,
                wanted=f"the folder with {NEED_FILES[name]}",
                got="no --source",
                fix="pass --source FOLDER",
            )
        if name.startswith("musk"):
            from miue.datasets.musk import musk_bags

            return musk_bags(source, int(name[4]))
        if name == "mnist-bags":
            from miue.datasets.mnist import mnist_bags

            return mnist_bags(source, splits=splits, ood=ood, ood_ratio=ratio, progress=progress)
        from miue.datasets.cifar10 import cifar10_bags

        return cifar10_bags(source, splits=splits, ood=ood, ood_ratio=ratio, progress=progress)
    if ood or source is not None:
        raise ConfigError(
            item=name,
            wanted="no --source and no --ood: it makes its own",
            got="--ood" if ood else "--source",
            fix="leave it out",
        )
    if name == "digits-bags":
        from miue.datasets.digits import digits_bags

        return digits_bags(splits=splits, ood_ratio=ratio)
    from miue.datasets.gaussian import gaussian_bags

    return gaussian_bags(splits=splits, ood_ratio=ratio)
