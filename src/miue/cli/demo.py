"""``miue demo``: from training to decisions, without any download."""

from __future__ import annotations

from pathlib import Path

from miue.cli.options import AsJson, Out, Overwrite, Quiet
from miue.common.text import ResultTable, say, say_json

NEXT = """Next, with your own data (a folder of CLAM, TRIDENT or STAMP features and a table of labels):
  miue inspect features --labels labels.csv
  miue cross-validate features --labels labels.csv --out cv
  miue train features --labels labels.csv --out run"""


def demo(
    out: Out = Path("demo"), overwrite: Overwrite = False, quiet: Quiet = False, as_json: AsJson = False
) -> None:
    """Run the whole workflow on handwritten digits, offline.

    Trains softmax and MIREL on bags of digits and compares them. Writes a folder with the bag store, both models
    with their calibration, predictions of bags and instances, evaluations, figures, a worklist and a report.
    """
    from miue.cli.demo_run import run_demo

    result = run_demo(out, overwrite=overwrite, progress=not quiet)
    report, worklist = out / "report.html", out / "worklist.csv"
    if as_json:
        say_json({**result.to_json(), "report": str(report), "worklist": str(worklist), "out": str(out)})
        return
    heading = ("in %", "softmax", "MIREL", "explanation")
    ResultTable(heading, result.rows(), is_prose=True).show("Bags of digits, positive if they contain a 9")
    say("One training run of each, on easy images: an example, not a comparison of the methods.\n")
    for case in result.cases:
        say(f"{case}.\n")
    say(f"Open {report} in a browser. {worklist} lists the bags to look at first.")
    say("Models, predictions, evaluations and figures are in the same folder.\n")
    say(NEXT)
