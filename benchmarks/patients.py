"""Several slides per patient, of which one decides: a patient's slides as bags, or all of them as one bag.

Usage: python benchmarks/patients.py [--seeds 1,2] [--methods softmax,mirel] [--source FOLDER]

Instances are MNIST's digits at 7 × 7 pixels. A patient has four slides of 8 to 16 digits; of a positive patient,
one slide has three to five 9s, and no slide of a negative one has any. Only the patient's label is known, and is
that of each slide. 200 patients are trained on, 60 validated on, and 200 tested on, with other digits. Printed are
the AUROC of patients by the mean of their slides' predictions (as ``patients.csv`` has it), by the highest
probability of a slide, and with one bag per patient, and the seconds that both trainings take.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

import miue
from miue.bags import BagDataset, merge_bags
from miue.datasets.images import read_images

SLIDES, TARGET = 4, 9
PATIENTS = {"train": 200, "validation": 60, "test": 200}
TRAINING = {"max_epochs": 25, "bags_per_update": 8, "learning_rate": 1e-3, "device": "cpu"}


def draw(source: Path, part: str, patients: int, seed: int) -> BagDataset:
    """Return the slides of patients, half of them positive, each slide with the label of its patient."""
    images = read_images(source, "mnist", "test" if part == "test" else "train")
    random = np.random.default_rng(seed)
    small = images.instances.reshape(-1, 7, 4, 7, 4).mean((2, 4), dtype=np.float32).reshape(-1, 49) / 255
    targets, others = np.flatnonzero(images.labels == TARGET), np.flatnonzero(images.labels != TARGET)
    bags, labels, names = [], [], []
    for patient in range(patients):
        deciding = random.integers(SLIDES) if patient % 2 else -1
        for slide in range(SLIDES):
            digits = random.choice(others, random.integers(8, 17), replace=False)
            if slide == deciding:
                count = random.integers(3, 6)
                digits[:count] = random.choice(targets, count, replace=False)
            bags.append(small[random.permutation(digits)])
            labels.append(patient % 2)
            names.append(f"{part}-{patient}")
    ids = [f"{name}-s{number % SLIDES}" for number, name in enumerate(names)]
    return BagDataset.from_arrays(bags, labels, ids=ids, patients=names)


def main() -> None:
    """Print a row for each method and seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--methods", default="softmax,mirel")
    parser.add_argument("--source", type=Path, default=Path("../shared/data"))
    arguments = parser.parse_args()
    print("method,seed,mean_of_slides,highest_of_slides,one_bag,seconds_of_slides,seconds_of_patients", flush=True)
    for seed in map(int, arguments.seeds.split(",")):
        for method in arguments.methods.split(","):
            slides = {
                part: draw(arguments.source, part, count, 10 * seed + number)
                for number, (part, count) in enumerate(PATIENTS.items())
            }
            found, seconds = [], []
            for parts in (slides, {part: merge_bags(bags) for part, bags in slides.items()}):
                begin = time.perf_counter()
                settings = {"seed": seed, **TRAINING}
                data = {"validation": parts["validation"], "method": method, "settings": settings}
                model = miue.train(parts["train"], **data, progress=False)
                seconds.append(time.perf_counter() - begin)
                predictions = model.predict(parts["test"])
                probabilities = predictions.bags.probabilities[:, 1]
                of_patients = predictions.by_patient()
                if of_patients is not None:
                    found.append(roc_auc_score(of_patients.labels.values, of_patients.probabilities[:, 1]))
                    highest = probabilities.reshape(-1, SLIDES).max(1)
                    found.append(roc_auc_score(parts["test"].labels.values[::SLIDES], highest))
                else:
                    found.append(roc_auc_score(parts["test"].labels.values, probabilities))
            shown = [*(f"{one:.3f}" for one in found), *(f"{one:.0f}" for one in seconds)]
            print(f"{method},{seed},{','.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
