"""The paper's figures by name: what each shows, and what draws it from trained presets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from miue.common.errors import unknown_name
from papers.mirel.figures.bag_examples import draw_bag_examples
from papers.mirel.figures.confidence_by_digit import draw_confidence_by_digit
from papers.mirel.figures.confidence_by_ratio import draw_confidence_by_ratio, draw_strength_by_ratio
from papers.mirel.figures.detection_by_ratio import draw_detection_by_ratio
from papers.mirel.figures.estimator_surfaces import draw_estimator_surfaces
from papers.mirel.figures.figure_with_data import FigureWithData
from papers.mirel.figures.ood_sweep import SOURCES
from papers.mirel.paths import Paths

Draw = Callable[[Sequence[int], Paths, str], FigureWithData]
"""(seeds, paths, device) → figure and its numbers."""


class PaperFigure(NamedTuple):
    """A figure by name.

    Attributes:
        shows: what it shows.
        draw: draws it.
    """

    shows: str
    draw: Draw


def _figures() -> dict[str, PaperFigure]:
    figures = {}
    networks = {"abmil": "ABMIL", "dsmil": "DSMIL"}
    swept = [("mnist", network, source) for network in networks for source in SOURCES["mnist-bags"]]
    for data, network, source in [*swept, *(("cifar10", "abmil", name) for name in SOURCES["cifar10-bags"])]:
        shown = f"of bags and instances by share of {source} instances, {networks[network]}"
        figures[f"confidence-{network}-{source}"] = PaperFigure(
            f"confidence {shown} with and without MIREL",
            partial(draw_confidence_by_ratio, data, network, source),
        )
        figures[f"strength-{network}-{source}"] = PaperFigure(
            f"α0 {shown} + MIREL", partial(draw_strength_by_ratio, data, network, source)
        )
    for network, title in networks.items():
        figures[f"ood-ratio-{network}"] = PaperFigure(
            f"AUROC of OOD bags against others by share of OOD instances, {title}, {title} + MIREL, and distance",
            partial(draw_detection_by_ratio, network),
        )
        figures[f"digits-{network}"] = PaperFigure(
            f"confidence of instances by digit, {title} with and without MIREL",
            partial(draw_confidence_by_digit, network),
        )
    figures["surfaces"] = PaperFigure(
        "probability and uncertainty over the plane of the synthetic bags: a_k, T, T of I-EDL, R",
        draw_estimator_surfaces,
    )
    figures["bag-examples"] = PaperFigure(
        "bags of MNIST-bags, instance by instance, under ABMIL + MIREL", draw_bag_examples
    )
    return figures


FIGURES = _figures()


def paper_figure(name: str) -> PaperFigure:
    """Return the figure of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in FIGURES:
        raise unknown_name("figure", name, FIGURES)
    return FIGURES[name]


__all__ = ["FIGURES", "FigureWithData", "PaperFigure", "paper_figure"]
