"""The model card: what a model is, what it takes, how it was trained, what was measured and what it is not for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from miue.common.errors import ConfigError, ModelError, first_problem
from miue.common.files import atomic_file, file_sha256, read_json
from miue.common.outputs import refuse_existing
from miue.common.text import escape_markdown, plural
from miue.common.values import checked
from miue.distributions.measures import MEASURES
from miue.evaluation.class_metrics import METRICS
from miue.model.contract import DataContract
from miue.model.folder import MODEL_FILES, saved_name
from miue.model.model import Model
from miue.model.part import find_package
from miue.predictions.provenance import Provenance

CARD = "README.md"
TAGS = ("multiple-instance-learning", "uncertainty-estimation", "out-of-distribution-detection")
SAME_FEATURES = (
    "They must come from the extractor of the training features, and patches of the same scale. Their width is "
    "checked, and extractor, scale and names of columns where the files state them."
)
SAME_IMAGES = "They must be made as the training images were. Their size is checked, how they were made cannot be."
TEXT = """\
# {title}

Predicts bags, and the instances in them, with the uncertainty of each; trained on bag labels. Made with miue
{version}.

## What it takes

- A bag is a set of instances, each {instance}.
- {same}
- Classes, in the order of the probabilities: {classes}.

## What it is

{model}

## How it was trained

{training}

## What was measured

{metrics}

## What travels with it

{files}

## Limits

- For research. Not for diagnosis, and not validated for any clinical use.
- Labels of bags were all that was learned from. How often predictions of single instances are wrong has been
  counted only where instance labels were evaluated above; nothing is promised of them{flags}.
- Numbers hold for bags drawn as those that were measured. Another scanner, hospital, staining or feature extractor
  is another distribution: measure, and calibrate, again.

## How to use it

{code}```sh
pip install "miue[hub]"
miue hub pull OWNER/NAME --out model{trust}
miue predict model STORE --out predictions{trust}
```
"""
FLAGS = "\n  beyond what calibration.json states of flagged ones"
CODE_OF_OTHERS = """\
Some parts are not of miue: {parts}. Install their code in the same version, and read it: `--trust` runs it.

"""


@checked()
def write_card(
    folder: Path | str,
    *,
    evaluation: Path | str | None = None,
    title: str | None = None,
    license: str | None = None,
    overwrite: bool = False,
    trust: bool = False,
) -> Path:
    """Write README.md, the model card, into a model's folder, and return its path.

    Args:
        folder: a model that was trained or saved.
        evaluation: a JSON file of ``miue evaluate --out``, of predictions of this model.
        title: what to call the model; else the folder's name.
        license: identifier such as "apache-2.0"; the choice is yours, and without it the card states none.
        overwrite: replace a card that is there.
        trust: whether to run parts of the model that are not of miue.

    Raises:
        StorageError: no model, no such evaluation, or a card that may not be replaced.
        ModelError: an evaluation of other weights.
        ConfigError: a file that is no evaluation.
    """
    folder = Path(folder)
    refuse_existing(folder / CARD, overwrite=overwrite)
    measured = None if evaluation is None else read_json(Path(evaluation), what="evaluation")
    model, title = Model.load(folder, trust=trust), title or folder.resolve().name
    text = model_card(model, title, file_digests(folder), evaluation=measured, license=license)
    with atomic_file(folder / CARD) as temporary:
        temporary.write_text(text, "utf-8")
    return folder / CARD


def model_card(
    model: Model,
    title: str,
    files: Mapping[str, str],
    *,
    evaluation: Mapping[str, Any] | None = None,
    license: str | None = None,
) -> str:
    """Return the text of a model card, its metadata first, as the Hub reads it.

    Args:
        model: what the card is of.
        title: what to call it.
        files: names of the files that travel with it, each with the SHA-256 of its content.
        evaluation: what ``Evaluation.to_json`` gave, of predictions of this model.
        license: identifier, or None to state none.

    Raises:
        ModelError: an evaluation of other weights.
        ConfigError: an evaluation without bags.
    """
    if evaluation is not None:
        _check_evaluation(model, evaluation)
    parts = (model.config.method.name, model.config.network.name)
    metadata: dict[str, Any] = {"library_name": "miue", "tags": [*TAGS, *parts]}
    if license is not None:
        metadata["license"] = license
    measured = ""
    if evaluation is not None:
        try:
            metadata["model-index"] = [{"name": title, "results": list(_results(evaluation))}]
            measured = _measured(evaluation)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _no_evaluation(f"parts that do not fit together ({type(error).__name__}: {error})") from error
    others = list(_code_of_others(model))
    body = TEXT.format(
        title=escape_markdown(title),
        version=version("miue"),
        instance=_instance(model.contract),
        same=SAME_FEATURES if len(model.contract.instance_shape) == 1 else SAME_IMAGES,
        classes=", ".join(map(escape_markdown, model.contract.class_names)),
        model=_listed(_what_it_is(model)),
        training=_listed(_how_it_was_trained(model)),
        metrics=measured or "Nothing yet.",
        files=_listed(_files(files)),
        flags=FLAGS if model.calibration is not None and model.calibration.instances is not None else "",
        code=CODE_OF_OTHERS.format(parts=", ".join(map(escape_markdown, others))) if others else "",
        trust=" --trust" if others else "",
    )
    return f"---\n{yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)}---\n\n{body}"


def file_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a model that is in ``folder``.

    Raises:
        StorageError: one cannot be read.
    """
    return {name: file_sha256(folder / name) for name in MODEL_FILES if (folder / name).exists()}


def listed_digests(card: str) -> dict[str, str]:
    """Return the SHA-256 of each file that a card lists with it; nothing of cards that list none."""
    pattern = rf"^- ({'|'.join(map(re.escape, MODEL_FILES))}): .*\bSHA-256 ([0-9a-f]{{64}})\s*$"
    return dict(re.findall(pattern, card, re.MULTILINE))


def _check_evaluation(model: Model, evaluation: Mapping[str, Any]) -> None:
    bags = evaluation.get("bags")
    if not isinstance(bags, Mapping) or "metrics" not in bags:
        raise _no_evaluation(f"keys {', '.join(map(str, evaluation)) or 'none'}")
    digest = _provenance(evaluation).weights_sha256
    if digest != model.weights_sha256:
        raise ModelError(
            item="the evaluation",
            wanted=f"one of predictions of this model (weights with SHA-256 {model.weights_sha256})",
            got="predictions that do not say which weights made them" if digest is None else f"SHA-256 {digest}",
            fix="predict with this model and evaluate that: miue predict RUN STORE; miue evaluate --out FILE",
        )


def _no_evaluation(got: str) -> ConfigError:
    return ConfigError(
        item="the evaluation",
        wanted="what miue evaluate --out wrote",
        got=got,
        fix="run miue evaluate PREDICTIONS --out evaluation.json",
    )


def _instance(contract: DataContract) -> str:
    shape = contract.instance_shape
    if len(shape) > 1:
        return f"an image, {' × '.join(map(str, shape))} (height, width, channels)"
    made_from = (
        f" of the encoder {escape_markdown(contract.extractor)}" if contract.extractor else "",
        f", of patches of {escape_markdown(' or '.join(contract.patch_scales))}" if contract.patch_scales else "",
    )
    return f"a vector of {plural(shape[0], 'feature')}" + "".join(made_from)


def _what_it_is(model: Model) -> dict[str, Any]:
    options = model.config.chosen_options()
    parts = {name: getattr(model.config, name).name for name in ("encoder", "network", "method")}
    return {
        **parts,
        "options": ", ".join(f"{key}={value}" for key, value in options.items()) or "as preset",
        "parameters": f"{model.method.num_parameters:,}",
        "distances to the training instances": ", ".join(model.distances) or "none",
        "calibration": "none" if model.calibration is None else "calibration.json, of these weights",
        "SHA-256 of model.safetensors": model.weights_sha256,
    }


def _code_of_others(model: Model) -> Iterator[str]:
    """Yield the import path of each part that is not of miue, with its package where that is installed."""
    distances = [name for name in map(saved_name, model.distances.values()) if ":" in name]
    for path in dict.fromkeys([*model.config.of_others, *distances]):
        package = find_package(path)
        yield f"{path} ({package})" if package else path


def _how_it_was_trained(model: Model) -> dict[str, Any]:
    called = {"criterion": "NLL and error rate, added", "constant_criterion": "those of the class shares alone"}
    record = model.training.model_dump(mode="json", exclude_defaults=True)
    settings = record.pop("settings")
    if "constant_criterion" in record:  # right after what it is to be compared with
        names = [name for name in record if name != "constant_criterion"]
        names.insert(names.index("criterion") + 1 if "criterion" in names else 0, "constant_criterion")
        record = {name: record[name] for name in names}
    facts = {called.get(name, name.replace("_", " ")): value for name, value in {**record, **settings}.items()}
    return {name: f"{value:.4f}" if name in called.values() else value for name, value in facts.items()}


def _files(digests: Mapping[str, str]) -> dict[str, str]:
    meaning = {
        "config.json": "what the model is made of, its data contract, how it was trained",
        "model.safetensors": "the weights",
        "distances.safetensors": "distances to the training instances",
        "calibration.json": "rules of decision, and what they promise",
        "validation.json": "quantiles of the uncertainties of the validation bags",
        "error_model.json": "by what the error probability of bags and instances is computed",
    }
    return {name: f"{meaning[name]}; SHA-256 {digests[name]}" for name in meaning if name in digests}


def _results(evaluation: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what was measured in the form of the Hub's model index, one entry per level."""
    for level, values in _levels(evaluation):
        metrics = [
            {"type": name, "name": METRICS[name].words, "value": value}
            for name, value in _listed_metrics(values).items()
            if isinstance(value, int | float)
        ]
        if metrics:
            yield {
                "task": {"type": "other", "name": f"multiple instance learning, {level}"},
                "dataset": {"type": "other", "name": _measured_on(evaluation)},
                "metrics": metrics,
            }


def _measured(evaluation: Mapping[str, Any]) -> str:
    lines = [f"On {escape_markdown(_measured_on(evaluation))}.", ""]
    for level, values in _levels(evaluation):
        lines += [
            f"| {level} ({values['labeled']:,} labeled of {values['count']:,}) | value |",
            "| --- | ---: |",
        ]
        shown = {METRICS[name].words: value for name, value in _listed_metrics(values).items()}
        shown[f"AUROC of {values['confidence_measure']} for a wrong prediction"] = values["confidence"]["auroc"]
        scores = [values["ood_measure"], *(name for name in values["by_measure"] if name not in MEASURES)]
        for source in values["ood"]:
            for score in scores:
                shown[f"AUROC of {score} for {source}"] = values["by_measure"][score]["ood"][source]["auroc"]
        lines += [f"| {escape_markdown(name)} | {_number(value)} |" for name, value in shown.items()] + [""]
    return "\n".join(lines).rstrip()


def _listed_metrics(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of a level by name, without UE: the AUROCs that it is the mean of are listed."""
    return {name: value for name, value in values["metrics"].items() if name in METRICS and name != "ue"}


def _measured_on(evaluation: Mapping[str, Any]) -> str:
    provenance = _provenance(evaluation)
    if provenance.bags is None:
        return "bags that are not named"
    return f"bags of {provenance.bags}" + (f", split {provenance.split}" if provenance.split else "")


def _provenance(evaluation: Mapping[str, Any]) -> Provenance:
    try:
        return Provenance.model_validate(evaluation.get("provenance"))
    except ValidationError as error:
        raise _no_evaluation(f"provenance, {first_problem(error)}") from error


def _levels(evaluation: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(level, evaluation[level]) for level in ("bags", "instances") if evaluation.get(level)]


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else f"undefined ({escape_markdown(value['reason'])})"


def _listed(facts: Mapping[str, Any]) -> str:
    return "\n".join(f"- {escape_markdown(name)}: {escape_markdown(value)}" for name, value in facts.items())
