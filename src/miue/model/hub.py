"""Models on the Hugging Face Hub (``pip install miue[hub]``): the model card, and the way there and back."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from miue.common.errors import (
    ConfigError,
    MiueError,
    ModelError,
    StorageError,
    cannot_write,
    import_extra,
    no_room_behind,
)
from miue.common.files import atomic_file, atomic_folder, file_sha256, json_text, read_json
from miue.common.folder_kinds import MODEL
from miue.common.outputs import refuse_existing
from miue.common.records import FILES, sealed
from miue.common.text import escape_markdown, plural
from miue.common.values import checked
from miue.distributions import MEASURES
from miue.evaluation import METRICS
from miue.model.contract import DataContract
from miue.model.folder import CONFIG, MODEL_FILES, SAVE_AGAIN, WEIGHTS, saved_name
from miue.model.model import Model
from miue.model.part import find_package
from miue.predictions import Provenance

CARD = "README.md"
TEMPLATE = Path(__file__).with_name("card.md.j2")
TAGS = ("multiple-instance-learning", "uncertainty-estimation", "out-of-distribution-detection")
CALLED = {"criterion": "NLL and error rate, added", "constant_criterion": "those of the class shares alone"}
PULL_AGAIN = "pull again; if it says the same, ask who maintains the repository"


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
        ConfigError: a file that is no evaluation, or huggingface_hub is not installed.
    """
    folder, hub = Path(folder), _hub("a model card")
    refuse_existing(folder / CARD, overwrite=overwrite)
    measured = {} if evaluation is None else read_json(Path(evaluation), what="evaluation")
    model, title = Model.load(folder, trust=trust), title or folder.resolve().name
    results, values = _measured(measured, model.weights_sha256, hub.EvalResult) if evaluation else ([], {})
    parts, config = (model.config.method.name, model.config.network.name), _shared_config(folder)
    metadata = hub.ModelCardData(library_name="miue", license=license, tags=[*TAGS, *parts])
    if results:
        metadata.model_name, metadata.eval_results = title, results
    card = hub.ModelCard.from_template(
        metadata,
        template_path=str(TEMPLATE),
        title=escape_markdown(title),
        version=version("miue"),
        instance=_instance(model.contract),
        is_image=len(model.contract.instance_shape) > 1,
        classes=list(map(escape_markdown, model.contract.class_names)),
        task="" if model.contract.target is None else model.contract.target.kind,
        bag_per=escape_markdown(model.contract.bag_per),
        model=_escaped(_what_it_is(model)),
        training=_escaped(_how_it_was_trained(model)),
        measured=values,
        files={CONFIG: _sha256(config), **json.loads(config)[FILES]},
        flags=model.calibration is not None and model.calibration.instances is not None,
        others=list(map(escape_markdown, _code_of_others(model))),
    )
    with atomic_file(folder / CARD) as temporary:
        temporary.write_text(f"{card}\n", "utf-8")
    return folder / CARD


def push(folder: Path | str, repository: str, *, private: bool = True, trust: bool = False) -> str:
    """Upload a model's folder and return its address; checkpoints, logs and trackers are not uploaded.

    Files of a model that was pushed there before and that this one lacks, such as a calibration, are removed.

    Args:
        folder: a model with a card.
        repository: "OWNER/NAME"; made if it is not there.
        private: make it private; one that is there stays as it is.
        trust: whether to run parts that are not of miue.

    Raises:
        ConfigError: huggingface_hub is not installed.
        StorageError: no model, no card of these weights, or a refusal of the Hub.
    """
    folder, hub = Path(folder), _hub("the Hugging Face Hub")
    model = Model.load(folder, trust=trust)
    card, config = _read_card(folder), _shared_config(folder)
    if _sha256(config) not in card:
        raise StorageError(
            item=f"model {str(folder)!r}",
            wanted=f"a card, {CARD}, of this model, which lists the SHA-256 of its {CONFIG}",
            got="a card of other files" if card else "none",
            fix="write a model card, and read it",
        )
    try:
        address = hub.create_repo(repository, private=private, exist_ok=True)
        with TemporaryDirectory() as shared:
            for name in (CARD, *json.loads(config)[FILES]):
                shutil.copyfile(folder / name, Path(shared) / name)
            (Path(shared) / CONFIG).write_bytes(config.encode())
            hub.upload_folder(
                repo_id=repository,
                folder_path=Path(shared),
                allow_patterns=[CARD, *MODEL_FILES],
                delete_patterns=list(MODEL_FILES),  # of an earlier model, such as its calibration
                commit_message=f"miue model, weights {model.weights_sha256[:12]}",
            )
    except _errors() as error:
        raise _refused(repository, error) from error
    return str(address)


def pull(
    repository: str, out: Path | str, *, revision: str | None = None, overwrite: bool = False, trust: bool = False
) -> Model:
    """Download a model to the folder ``out``, see that it loads, and return it.

    Args:
        repository: "OWNER/NAME".
        out: folder to write, whole or not at all.
        revision: branch, tag or commit; a commit always gives the same model.
        overwrite: replace what ``out`` holds.
        trust: whether to run parts that are not of miue, which have to be installed here.

    Raises:
        ConfigError: huggingface_hub is not installed.
        StorageError: no such repository, no model in it, other weights than its card names, or ``out`` is taken.
        ModelError: weights that do not fit the config.
    """
    out, hub = Path(out), _hub("the Hugging Face Hub")
    with atomic_folder(out, MODEL, overwrite=overwrite) as folder, TemporaryDirectory(dir=folder) as fetched:
        try:
            names = [CARD, *MODEL_FILES]
            hub.snapshot_download(repository, revision=revision, local_dir=fetched, allow_patterns=names)
        except _errors() as error:
            if full := no_room_behind(error):
                raise cannot_write(Path(fetched), full) from error
            raise _refused(repository, error) from error
        missing = [name for name in (CONFIG, WEIGHTS) if not (Path(fetched) / name).is_file()]
        if missing:
            raise StorageError(
                item=_named(repository),
                wanted=f"a model of miue, with {CONFIG} and {WEIGHTS}",
                got=f"a repository without {' and '.join(missing)}",
                fix="check the name and the revision, or push the model again",
            )
        for name in names:
            if (Path(fetched) / name).is_file():
                shutil.copyfile(Path(fetched) / name, folder / name)
        _check_card(folder, repository)
        try:
            return Model.load(folder, trust=trust)
        except MiueError as error:  # what is wrong is said of the repository, not of a folder that is gone
            file = error.item.replace(f"{folder}{os.sep}", "").replace(f" {str(folder)!r}", "")
            of_files = isinstance(error, StorageError) or error.fix == SAVE_AGAIN
            fix = PULL_AGAIN if of_files else error.fix
            raise error.replaced(item=f"{file} of {_named(repository)}", fix=fix) from error


def _hub(what: str) -> Any:
    return import_extra("huggingface_hub", what, "hub")


def _named(repository: str) -> str:
    return f"repository {repository!r} of the Hugging Face Hub"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read_card(folder: Path) -> str:
    """Return the text of a model's card, nothing where there is none."""
    return (folder / CARD).read_text("utf-8", "replace") if (folder / CARD).is_file() else ""


def _shared_config(folder: Path) -> str:
    """Return the text of config.json as others get it: it does not list splits.csv, which names patients.

    Raises:
        StorageError: it cannot be read.
    """
    content = read_json(folder / CONFIG, what="model config")
    files = {name: digest for name, digest in content[FILES].items() if name in MODEL_FILES}
    return json_text(sealed({**content, FILES: files}))


def _check_card(folder: Path, repository: str) -> None:
    """Raise where the card that was fetched names files by their SHA-256, and not the config.json that was.

    Raises:
        StorageError: the card or config.json belongs to another model.
    """
    named, found = re.findall(r"\b[0-9a-f]{64}\b", _read_card(folder)), file_sha256(folder / CONFIG)
    if named and found not in named:
        raise StorageError(
            item=_named(repository),
            wanted=f"the {CONFIG} of its card, {CARD}",
            got=f"one with SHA-256 {found}, which the card does not list",
            fix=PULL_AGAIN,
        )


def _errors() -> tuple[type[Exception], ...]:
    """Return what huggingface_hub raises: its own errors, those of names, of the network and of odd answers."""
    from huggingface_hub.errors import HfHubHTTPError

    return *HfHubHTTPError.__bases__, OSError, ValueError  # the first base is that of all errors of its client


def _refused(repository: str, error: Exception) -> StorageError:
    """Return what the Hub, or the way there, said, with what helps."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    wanted, fix = "to reach it", "check the network, HF_ENDPOINT and HF_HUB_OFFLINE"
    if isinstance(error, HFValidationError):
        wanted, fix = "a name such as OWNER/NAME", "correct the name; a model in a folder is used as it is"
    elif isinstance(error, HfHubHTTPError):
        wanted = "leave to use it"
        fix = "check the name and the revision, log in with 'hf auth login', or set HF_TOKEN, which comes first"
    got = " ".join(str(error).split()) or type(error).__name__
    return StorageError(item=_named(repository), wanted=wanted, got=got, fix=fix)


def _instance(contract: DataContract) -> str:
    shape = contract.instance_shape
    if len(shape) > 1:
        return f"an image, {' × '.join(map(str, shape))} (height, width, channels)"
    made_by = contract.extractor or " + ".join(contract.encoders)
    extractor = f" of the encoder {escape_markdown(made_by)}" if made_by else ""
    scales = escape_markdown(" or ".join(contract.patch_scales))
    beside = escape_markdown("; ".join(one.in_words for one in contract.covariates))
    of_patches = f", of patches of {scales}" if scales else ""
    covariates = f"; beside it, of each bag, {beside}" if beside else ""
    return f"a vector of {plural(shape[0], 'feature')}{extractor}{of_patches}{covariates}"


def _what_it_is(model: Model) -> dict[str, Any]:
    options = model.config.chosen_options()
    return {
        **{name: getattr(model.config, name).name for name in ("encoder", "network", "method")},
        "options": ", ".join(f"{key}={value}" for key, value in options.items()) or "as preset",
        "parameters": f"{model.method.num_parameters:,}",
        "distances to the training instances": ", ".join(model.distances) or "none",
        "calibration": "none" if model.calibration is None else "calibration.json, of these weights",
        "SHA-256 of model.safetensors": model.weights_sha256,
    }


def _how_it_was_trained(model: Model) -> dict[str, Any]:
    record = model.training.model_dump(mode="json", exclude_defaults=True)
    facts = {**record, **record.pop("settings")}
    criteria = {text: f"{facts.pop(name):.4f}" for name, text in CALLED.items() if name in facts}
    return {name.replace("_", " "): value for name, value in facts.items() if name != "settings"} | criteria


def _code_of_others(model: Model) -> Iterator[str]:
    """Yield the import path of each part that is not of miue, with its package where that is installed."""
    distances = [name for name in map(saved_name, model.distances.values()) if ":" in name]
    for path in dict.fromkeys([*model.config.of_others, *distances]):
        package = find_package(path)
        yield f"{path} ({package})" if package else path


def _measured(evaluation: Mapping[str, Any], weights: str, result: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return what was measured as the Hub reads it, and in words."""
    try:
        provenance = Provenance.model_validate(evaluation["provenance"])
        split = f", split {provenance.split}" if provenance.split else ""
        bags = "bags that are not named" if provenance.bags is None else f"bags of {provenance.bags}{split}"
        levels = {name: evaluation[name] for name in ("bags", "instances") if evaluation[name]}
        rows = {f"{n} ({v['labeled']:,} labeled of {v['count']:,})": _rows(v) for n, v in levels.items()}
        results = [
            result(
                task_type="other",
                task_name=f"multiple instance learning, {level}",
                dataset_type="other",
                dataset_name=bags,
                dataset_config=level,  # by which the Hub keeps results apart
                metric_type=name,
                metric_name=METRICS[name].words,
                metric_value=value,
            )
            for level, values in levels.items()
            for name, value in _listed_metrics(values).items()
            if not isinstance(value, dict)
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # of ValueError, a ValidationError
        raise ConfigError(
            item="the evaluation",
            wanted="the JSON of an evaluation by miue",
            got=f"parts that do not fit together ({type(error).__name__}: {error})",
            fix="evaluate predictions of this model again",
        ) from error
    if provenance.weights_sha256 != weights:
        raise ModelError(
            item="the evaluation",
            wanted=f"one of predictions of this model (weights with SHA-256 {weights})",
            got=f"one of predictions of weights with SHA-256 {provenance.weights_sha256 or '(not stated)'}",
            fix="predict with this model, and evaluate these predictions",
        )
    return results, {"bags": escape_markdown(bags), "levels": rows}


def _rows(level: Mapping[str, Any]) -> dict[str, str]:
    """Return what was measured of one level, by names that a reader understands."""
    shown = {METRICS[name].words: value for name, value in _listed_metrics(level).items()}
    shown[f"AUROC of {level['confidence_measure']} for a wrong prediction"] = level["confidence"]["auroc"]
    scores = [level["ood_measure"], *(name for name in level["by_measure"] if name not in MEASURES)]
    for source in level["ood"]:
        for score in scores:
            shown[f"AUROC of {score} for {source}"] = level["by_measure"][score]["ood"][source]["auroc"]
    values = (f"undefined ({v['reason']})" if isinstance(v, dict) else f"{v:.4f}" for v in shown.values())
    return _escaped(dict(zip(shown, values, strict=True)))


def _listed_metrics(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of a level by name, without UE: the AUROCs that it is the mean of are listed."""
    return {name: value for name, value in values["metrics"].items() if name in METRICS and name != "ue"}


def _escaped(facts: Mapping[str, Any]) -> dict[str, str]:
    return {escape_markdown(name): escape_markdown(value) for name, value in facts.items()}
