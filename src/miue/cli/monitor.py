"""``miue monitor``: are the bags that come still like those of the calibration?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from miue.cli.flags import MANY, separate, takes_settings
from miue.cli.options import AsJson
from miue.cli.outputs import locks_out
from miue.cli.predictions import read_given
from miue.common.errors import first_few
from miue.common.text import plural, say, say_json

if TYPE_CHECKING:
    from miue.settings import TableSettings

ROWS_SHOWN = 30  # in the terminal; the page has all


@takes_settings(table="miue.settings:TableSettings", without=("instances",))
@locks_out
def monitor(
    calibration: Annotated[
        Path, typer.Argument(metavar="RUN", help="A calibrated run, or a file that miue calibrate wrote.")
    ],
    predictions: Annotated[
        list[Path],
        typer.Argument(metavar="PREDICTIONS", help="Folders or tables, in the order in which they came."),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the monitor; what it has is kept.")],
    table: TableSettings,
    score: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"Watch only this uncertainty, or class_mix. {MANY}", callback=separate),
    ] = None,
    false_alarms: Annotated[
        float, typer.Option(help="Chance of an alarm ever, as long as nothing changes.", metavar="SHARE")
    ] = 0.01,
    as_json: AsJson = False,
) -> None:
    """Check that new bags still resemble the calibration bags.

    Run it on each new batch of predictions: a day, a folder, a shard. Bag by bag, each uncertainty is compared
    with its values on the calibration bags and in all earlier batches; values that are too low count as much as
    those that are too high. The class mix, estimated from the predicted classes, is watched, too. Labels are not
    read. The chance of a false alarm holds for all batches together, however often you look at them.

    Writes bags.csv, course.csv and monitor.html. A batch that was added before is skipped; it is refused if its
    bags have other predictions now. With an alarm, too, the exit status is 0: scripts read --json.

    Example: miue monitor run predictions-monday predictions-tuesday --out monitor
    """
    from miue.calibration import Calibration, match_classes
    from miue.calibration.monitoring import Batch, add_batches, batch_names, watched_scores
    from miue.calibration.monitoring.folder import PAGE
    from miue.common.files import name_of
    from miue.common.folder_kinds import EMPTY_SHARD

    calibrated = Calibration.load(calibration)
    scores = watched_scores(calibrated, score)
    batches, empty = [], [path for path in predictions if (path / EMPTY_SHARD).exists()]
    for path in predictions:
        if path in empty and (len(empty) < len(predictions) or batch_names(out)):
            say(f"Note: {str(path)!r} is a shard without bags, which adds nothing", err=True)
            continue
        given = read_given(path, None, table.classes)
        calibrated.check_weights(given.provenance.weights_sha256)
        match_classes(given, calibrated)
        batches.append(Batch.of(name_of(path), given.bags, calibrated, scores))
    trained = sum(batch.trained for batch in batches)
    names = [*batch_names(out), *(batch.name for batch in batches)]
    skipped = [name for row, name in enumerate(names) if name in names[:row]]
    course = add_batches(out, calibrated, batches, scores, chance=false_alarms)
    if as_json:
        column = course.strongest()
        evidence = float(course.log10_evidence[:, column].max())
        say_json(
            {
                "alarm": bool(course.alarms),
                "alarm_batch": course.alarm_batch,
                "alarms": course.alarms,
                "bags": len(course.counted),
                "counted": len(course.ids),
                "batches": len(course.batches),
                "skipped": skipped,
                "trained_on": trained,
                "strongest": {"score": course.scores[column], "log10_evidence": evidence},
                "log10_limits": dict(zip(course.scores, course.log10_limits, strict=True)),
                "class_mix": course.mix_to_json(),
                "patients_unknown": course.patients_unknown,
                "page": str(out / PAGE),
            }
        )
        return
    if skipped:
        what = f"{first_few(map(repr, skipped))}, which the monitor has already; another batch needs another name"
        say(f"Note: skipped {what}", err=True)
    if trained:
        what = f"{plural(trained, 'bag')} that the model was trained on, or others of their patients"
        say(f"Note: left out {what}", err=True)
    for shown in course.tables():
        shown.last(ROWS_SHOWN).show()
    say(" ".join(filter(None, (str(course), course.advice))))
    say(f"Page: {out / PAGE}")
