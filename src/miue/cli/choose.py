"""``miue choose``: which network, method or baseline suits the data, and the model that is."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from miue.cli.bags import open_bags, say_left_out
from miue.cli.flags import MANY, separate, takes_settings
from miue.cli.options import AsJson, Bags, ContinuedOut, Quiet
from miue.common.errors import unknown_name
from miue.common.text import TRAINING, plural, say, say_json

if TYPE_CHECKING:
    from miue.settings import LoadSettings, RunSettings


@takes_settings(
    load="miue.settings:LoadSettings",
    settings="miue.settings:RunSettings",
    without=("fold", "devices", "nodes", "trackers"),
)
def choose(
    bags: Bags,
    out: ContinuedOut,
    load: LoadSettings,
    settings: RunSettings,
    candidate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Candidate to try; by default pooled-logistic and pooled-forest (for features), mean-softmax, "
            "attention-softmax, attention-sngp, attention-mirel, one-sided-gp, those that learn from the labels. "
            f"{MANY}",
            callback=separate,
            rich_help_panel=TRAINING,
        ),
    ] = None,
    folds: Annotated[int, typer.Option(min=3, help="How many folds to draw.", rich_help_panel=TRAINING)] = 5,
    seed: Annotated[
        int, typer.Option(min=0, help="Random seed of folds and trainings.", rich_help_panel=TRAINING)
    ] = 42,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compare candidates; train their mixture or a better one.

    Candidates are compared by the NLL of patients, or bags, that they were not trained on. The model is the mean
    of all candidates, or one that is clearly better; with a few dozen bags, the best of a table is often not the
    best on new bags. Test bags of the label table or --splits take no part. --out gets choice.csv and, in model,
    what was chosen, trained on all bags; after a kill, the same command continues.

    Example: miue choose features --labels labels.csv --out choice
    """
    from miue.selection import candidates
    from miue.selection import choose as run

    opened = open_bags(bags, load, progress=not quiet, check_values=True)
    say_left_out(opened)
    known = candidates(opened.bags)
    for name in candidate or ():
        if name not in known:
            raise unknown_name("candidate", name, tuple(known))
    recipes = {name: known[name] for name in candidate or known}
    choice = run(opened.bags, out, recipes, folds=folds, seed=seed, settings=settings, progress=not quiet)
    if as_json:
        tried = [asdict(one) for one in choice.tried]
        chosen = {"chosen": choice.name, "members": list(choice.members), "chosen_in": choice.chosen_in}
        say_json({**chosen, "tried": tried, "out": str(out)})
        return
    choice.as_table().show(f"{plural(len(recipes), 'candidate')}, {plural(folds, 'fold')}")
    say(f"Written to {out}: choice.csv, the model in {out / 'model'}, and each run with its predictions.")
