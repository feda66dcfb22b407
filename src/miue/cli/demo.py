"""``miue demo``: the whole way, without any download."""

from __future__ import annotations

from pathlib import Path

from miue.cli.options import Out, Overwrite, Quiet
from miue.common.terminal import say, show_table


def demo(out: Out = Path("demo"), overwrite: Overwrite = False, quiet: Quiet = False) -> None:
    """Run the whole way on handwritten digits, offline.

    Trains MIREL on bags of digits, and shows what it knows and does not. Writes a folder with the bag store, the
    model, predictions of bags and instances, metrics, figures and an HTML report.
    """
    from miue.cli.demo_run import run_demo
    from miue.evaluation.evaluation import evaluation_table

    evaluation = run_demo(out, overwrite=overwrite, progress=not quiet)
    show_table(evaluation_table(evaluation).as_rich("Evaluation"))
    say(f"Written to {out}/: store, run, predictions, evaluation.json, figures, report.html.")
    say(f"Open {out / 'report.html'} in a browser to look into it.")
