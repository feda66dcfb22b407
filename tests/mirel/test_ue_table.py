"""UE with the combined distance: which numbers enter, and which targets are bold."""

from __future__ import annotations

from pathlib import Path

from papers.mirel.results import Result, write_results
from papers.mirel.ue_table import ROWS, ue_table


def write(folder: Path, seed: int, *, conf: float, by_error: float) -> None:
    """Write results of MIREL whose OOD is 1.0 and 0.9 at both levels."""
    results = []
    for level, estimator, score in (
        ("bag", "residual", "combined_mean"),
        ("instance", "residual", "combined"),
        ("instance", "bag-of-one", "combined"),
    ):
        results += [
            Result(estimator, level, "accuracy", "default", 0.9),
            Result(estimator, level, "conf", "default", conf),
            Result(estimator, level, "conf", "least_confidence", 0.5),
            *(
                []
                if estimator == "bag-of-one"
                else [Result(estimator, level, "conf", "error_probability", by_error)]
            ),
            Result(estimator, level, "ood fmnist", score, 1.0),
            Result(estimator, level, "ood kmnist-test", score, 0.9),
            Result(estimator, level, "ood kmnist-test", "default", 0.1),
        ]
    write_results(folder / f"{seed}.csv", "/".join(folder.parts[-2:]), seed, 2, results)


def test_bags_count_errors_by_their_probability_r_by_error_confidence_and_t_by_the_papers_measure(
    tmp_path: Path,
) -> None:
    folder = tmp_path / ROWS["`max`"]
    write(folder, 1, conf=0.70, by_error=0.98)
    write(folder, 2, conf=0.74, by_error=1.00)
    (row,) = [line for line in ue_table(tmp_path).splitlines() if line.startswith("| `max`")]
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "`max`",
        "2",
        "90.0 ± 0.0",
        "99.0 ± 1.4",
        "95.0 ± 0.0",
        "**96.3 ± 0.5**",  # (99 + 100 + 90) / 3
        "90.0 ± 0.0",
        "90.0 ± 0.0",
        "99.0 ± 1.4",
        "72.0 ± 2.8",
        "95.0 ± 0.0",
        "**96.3 ± 0.5**",
        "87.3 ± 0.9",
    ]


def test_a_result_that_is_cut_off_does_not_count(tmp_path: Path) -> None:
    folder = tmp_path / ROWS["`max`"]
    write(folder, 1, conf=0.7, by_error=0.9)
    whole = (folder / "1.csv").read_text()
    (folder / "2.csv").write_text("\n".join(whole.splitlines()[:-2]) + "\n")
    assert "| `max` | 1 | 90.0 | 90.0 |" in ue_table(tmp_path)
    assert "| `mean`" not in ue_table(tmp_path)
