"""What an age beside the features of a bag brings, where the label depends on both.

A bag has 10 to 30 instances of 32 numbers; in half of the bags, one in five is shifted. The log-odds of the label
are 3 (shifted − ½) + 1.5 (age − 60) / 12. Printed are the AUROC of 2,000 new bags by the age alone (logistic
regression), by the features, by both, and by the true log-odds: ``python benchmarks/covariates.py``.
"""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import miue

WIDTH, TEST = 32, 2000


def draw(count: int, seed: int) -> tuple[miue.BagDataset, np.ndarray, np.ndarray]:
    """Return bags, their ages and the true log-odds."""
    draws = np.random.default_rng(seed)
    ages, shifted = draws.normal(60, 12, count).round(), draws.random(count) < 0.5
    log_odds = 3 * (shifted - 0.5) + 1.5 * (ages - 60) / 12
    labels = (draws.random(count) < 1 / (1 + np.exp(-log_odds))).astype(int)
    arrays = []
    for is_shifted in shifted:
        instances = draws.normal(size=(draws.integers(10, 31), WIDTH))
        instances[: max(1, len(instances) // 5), :4] += 2.5 * is_shifted
        arrays.append(instances.astype(np.float32))
    bags = miue.BagDataset.from_arrays(arrays, labels.tolist(), ids=[f"{seed}-{bag}" for bag in range(count)])
    return miue.with_covariates(bags, {"age": ages.tolist()}), ages, log_odds


def main() -> None:
    """Print a row for each method, number of bags and seed."""
    for method in ("softmax", "mirel"):
        for count in (100, 400):
            for seed in (1, 2, 3):
                (train, ages, _), (test, new, log_odds) = draw(count, seed), draw(TEST, 100 + seed)
                labels = test.labels.values
                by_age = LogisticRegression().fit(ages[:, None], train.labels.values).predict_proba(new[:, None])
                aurocs = [roc_auc_score(labels, by_age[:, 1])]
                for bags, tested in (
                    (miue.with_covariates(train, {}), miue.with_covariates(test, {})),
                    (train, test),
                ):
                    settings = {"seed": seed, "device": "cpu", "distances": ()}
                    model = miue.train(bags, method=method, progress=False, settings=settings)
                    aurocs.append(roc_auc_score(labels, model.predict(tested).bags.probabilities[:, 1]))
                aurocs.append(roc_auc_score(labels, log_odds))
                words = ("age", "features", "both", "truth")
                row = " ".join(f"{word} {value:.3f}" for word, value in zip(words, aurocs, strict=True))
                print(f"{method} {count} bags, seed {seed}: {row}", flush=True)


if __name__ == "__main__":
    main()
