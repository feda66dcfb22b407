"""How often the promises on flagged instances are broken, over 500 calibrations each: a table as CSV.

    python benchmarks/flag_promises.py results/instance_guarantees/simulation.csv

Every calibration is drawn anew, and one new patient with it, so that the losses are independent. A chance is
compared with the upper end of the central 99.9 % of the binomial, a mean with 3.3 standard errors above the level.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from scipy.stats import binom

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from made_flags import FlagWorld, mean_loss

from miue.calibration import InstanceGoal
from miue.calibration.instance_thresholds import fit_instance_flags
from miue.common.tables import write_rows

RUNS, PATIENTS = 500, 39
WORLDS = {
    "bags": FlagWorld(),
    "bags with ties": FlagWorld(rounded=1),
    "patients with 1 to 4 bags": FlagWorld(bags_of_patient=4),
    "patients with 1 to 4 bags with ties": FlagWorld(1, 4),
}
GOALS = (
    InstanceGoal("no-false-flag", 0.1),
    InstanceGoal("no-false-flag", 0.1, allowed=2),
    InstanceGoal("false-positives", 0.5, cap=5),
    InstanceGoal("detection", 0.1),
    InstanceGoal("recall", 0.2),
)
COLUMNS = (
    "world",
    "guarantee",
    "allowed",
    "cap",
    "level",
    "calibrations",
    "mean_loss",
    "largest_explained",
    "kept",
)


def simulate(name: str, goal: InstanceGoal) -> tuple[object, ...]:
    """Return a row: the mean loss of one new patient for each calibration, and what the level explains."""
    world, random, label = WORLDS[name], np.random.default_rng(17), int(not goal.of_negatives)
    losses = np.zeros(RUNS)
    for run in range(RUNS):
        rule = fit_instance_flags(world.sample(random, PATIENTS, label), goal, ("negative", "positive"))
        new = world.sample(random, 1, label)
        assert new.instances is not None
        flagged = rule.flag(new.instances).flagged
        assert flagged is not None
        losses[run] = mean_loss(new, flagged, goal.guarantee, allowed=goal.allowed, cap=goal.cap)
    if set(np.unique(losses)) <= {0.0, 1.0}:
        explained = float(binom.ppf(0.9995, RUNS, goal.level)) / RUNS
    else:
        explained = goal.level + 3.3 * float(losses.std(ddof=1)) / RUNS**0.5
    kept = losses.mean() <= explained
    row = (name, goal.guarantee, goal.allowed, goal.cap, goal.level, RUNS)
    return (*row, f"{losses.mean():.4f}", f"{explained:.4f}", str(kept).lower())


if __name__ == "__main__":
    write_rows(Path(sys.argv[1]), COLUMNS, [simulate(name, goal) for name in WORLDS for goal in GOALS])
