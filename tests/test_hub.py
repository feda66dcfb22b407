"""Model cards say what is true of the model; a model goes to a repository and comes back the same.

No test asks the network: the Hub's upload and download are replaced by copies to and from a local folder,
with the Hub's own rule of which files a pattern allows.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
import tempfile
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import parts_of_others as others
import pytest
import yaml
from made_bags import train_with
from markdown_it import MarkdownIt
from typer.testing import CliRunner

import miue
from miue.bags import BagDataset
from miue.cli import app
from miue.common.errors import ConfigError, ModelError, StorageError
from miue.common.files import write_json
from miue.common.text import visible
from miue.io import write_store
from miue.model.folder import MODEL_FILES
from miue.model.hub import CARD, TEMPLATE, pull, push, write_card

huggingface_hub = pytest.importorskip("huggingface_hub")
errors = pytest.importorskip("huggingface_hub.errors")


@pytest.fixture
def run(tmp_path: Path, bags: BagDataset) -> Path:
    folder = tmp_path / "run"
    miue.train(bags, out=folder, settings={"max_epochs": 2, "device": "cpu"}, progress=False)
    return folder


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local folder in place of the Hub."""
    from huggingface_hub.utils._paths import filter_repo_objects

    remote = tmp_path / "remote"

    def copy(source: Path, target: Path, patterns: list[str]) -> None:
        if not source.is_dir():
            raise OSError("404: no such repository")
        target.mkdir(parents=True, exist_ok=True)
        names = [file.relative_to(source).as_posix() for file in source.rglob("*") if file.is_file()]
        for name in filter_repo_objects(names, allow_patterns=patterns):
            shutil.copy(source / name, target / name)

    def create(repo_id: str, *, private: bool, exist_ok: bool) -> str:
        return f"{huggingface_hub.constants.ENDPOINT}/{repo_id}"

    def upload(
        *,
        repo_id: str,
        folder_path: Path,
        allow_patterns: list[str],
        commit_message: str,
        delete_patterns: list[str],
    ) -> None:
        there = list((remote / repo_id).iterdir()) if (remote / repo_id).is_dir() else []
        for file in there:
            if any(fnmatch(file.name, pattern) for pattern in delete_patterns):
                file.unlink()
        copy(folder_path, remote / repo_id, allow_patterns)

    def download(repo_id: str, *, revision: str | None, local_dir: str, allow_patterns: list[str]) -> None:
        copy(remote / repo_id, Path(local_dir), allow_patterns)

    monkeypatch.setattr(huggingface_hub, "create_repo", create)
    monkeypatch.setattr(huggingface_hub, "upload_folder", upload)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return remote


def evaluated(run: Path, bags: BagDataset, out: Path) -> dict[str, Any]:
    evaluation = miue.Model.load(run).evaluate(bags, allow_training_bags=True).to_json()
    write_json(out, evaluation)
    return evaluation


def test_a_full_disk_is_no_fault_of_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(StorageError, match="got No space left on device; free space or choose another place"):
        pull("someone/model", tmp_path / "out")
    assert not list(tmp_path.glob("out"))


def test_the_metadata_of_a_card_is_what_the_hub_reads(run: Path, bags: BagDataset, tmp_path: Path) -> None:
    evaluation = evaluated(run, bags, tmp_path / "e.json")
    write_card(run, evaluation=tmp_path / "e.json", title='a "quoted": title', license="apache-2.0")
    data = huggingface_hub.ModelCard.load(run / CARD).data
    assert (data.library_name, data.license, data.model_name) == ("miue", "apache-2.0", 'a "quoted": title')
    assert {"multiple-instance-learning", "mirel", "attention"} <= set(data.tags)
    found = {(one.task_name, one.metric_type): one.metric_value for one in data.eval_results}
    for level in ("bags", "instances"):
        for name in ("accuracy", "balanced_accuracy", "ece", "brier", "nll"):
            key = (f"multiple instance learning, {level}", name)
            assert found[key] == evaluation[level]["metrics"][name]


def test_a_card_says_what_the_model_is_and_states_no_license_unasked(run: Path) -> None:
    text = write_card(run).read_text()
    model = miue.Model.load(run)
    assert "license" not in yaml.safe_load(text.split("---")[1])
    for fact in ("a vector of 5 features", "0, 1", "method: mirel", "seed: 42", "max epochs: 2", "Nothing yet."):
        assert fact in text
    assert f"best epoch: {model.training.best_epoch}" in text
    assert f"NLL and error rate, added: {model.training.criterion:.4f}" in text
    constant = model.training.constant_criterion
    assert f"{model.training.criterion:.4f}\n- those of the class shares alone: {constant:.4f}\n" in text
    assert "nothing is promised of them.\n" in text
    assert text.count("learning rate") == 1
    assert "{" not in text
    assert model.weights_sha256 in text
    assert "For research. Not for diagnosis" in text
    assert "trust" not in text and "not of miue" not in text


@pytest.mark.long
def test_the_card_of_a_model_with_parts_of_others_says_what_to_install_and_its_commands_work(
    bags: BagDataset, tmp_path: Path, hub: Path
) -> None:
    folder = tmp_path / "run"
    given: dict[str, Any] = {"encoder": others.Scaling, "distances": [others.Farness], "network": "mean"}
    train_with(bags, out=folder, settings={"max_epochs": 1, "device": "cpu"}, progress=False, **given)
    text = write_card(folder, trust=True).read_text()
    assert "Some parts are not of miue" in text and "encoder.factor=2.0" in text
    for path in ("parts_of_others:Scaling", "parts_of_others:Farness"):
        assert path in text.replace("\\", "")
    push(folder, "someone/model", trust=True)
    command = next(line for line in text.split("\n") if line.startswith("miue hub pull"))
    words = command.replace("OWNER/NAME", "someone/model").replace("--out model", f"--out {tmp_path / 'pulled'}")
    result = CliRunner().invoke(app, words.split()[1:])
    assert result.exit_code == 0, result.output
    assert "miue predict model STORE --out predictions --trust" in text


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "x\n\n# Approved\n\n![x](http://evil/x.png)",
        "<img src=x>",
        "[a](javascript:b)",
        "a | b",
        "`code` *b* _c_ ~~d~~",
        "\x1b[31m&amp;",
        "https://evil www.evil",
        "\\",
    ],
)
def test_names_in_a_card_are_text_whatever_markdown_they_look_like(
    name: str, bags: BagDataset, tmp_path: Path
) -> None:
    called = replace(bags, class_names=(name, "other"), ood_sets=bags.ood_sets)
    miue.train(called, out=tmp_path / "run", settings={"max_epochs": 1, "device": "cpu"}, progress=False)
    evaluation = miue.Model.load(tmp_path / "run").evaluate(called, allow_training_bags=True).to_json()
    evaluation["provenance"] |= {"bags": name, "split": name}
    for level in ("bags", "instances"):
        evaluation[level]["ood"] = {name: {}}
        evaluation[level]["metrics"]["ece"] = {"value": None, "reason": name}
        for measure in evaluation[level]["by_measure"].values():
            measure["ood"] = {name: {"auroc": 0.5}}
    write_json(tmp_path / "e.json", evaluation)
    text = write_card(tmp_path / "run", evaluation=tmp_path / "e.json", title=name).read_text()
    body = text.split("---\n", 2)[2]
    plain = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(body)
    kinds = {token.type for block in plain for token in (block, *(block.children or ()))}
    assert not kinds & {"image", "link_open", "html_inline", "html_block", "em_open", "strong_open", "s_open"}
    shown = "".join(t.content for b in plain for t in b.children or () if t.type in ("text", "text_special"))
    assert f"probabilities: {visible(name)}, other" in shown
    headings = [plain[row + 1].content for row, token in enumerate(plain) if token.type == "heading_open"]
    assert headings[1:] == re.findall(r"^## (.*)$", TEMPLATE.read_text(), re.M)
    opened = [token.type for token in plain]
    assert opened.count("td_open") + opened.count("th_open") == 2 * opened.count("tr_open") > 0
    assert yaml.safe_load(text.split("---\n")[1])["model-index"][0]["name"] == name


@pytest.mark.parametrize(
    "part", ["metrics", "confidence", "by_measure", "ood_measure", "labeled", "confidence_measure"]
)
def test_an_evaluation_without_a_part_is_refused(part: str, run: Path, bags: BagDataset, tmp_path: Path) -> None:
    evaluation = evaluated(run, bags, tmp_path / "e.json")
    for damaged in ({k: v for k, v in evaluation["bags"].items() if k != part}, {**evaluation["bags"], part: 3}):
        write_json(tmp_path / "d.json", {**evaluation, "bags": damaged})
        if damaged.get(part) == 3 and part in ("labeled", "confidence_measure", "ood_measure"):
            continue
        with pytest.raises(ConfigError) as refused:
            write_card(run, evaluation=tmp_path / "d.json")
        assert refused.value.item == "the evaluation"


def test_an_evaluation_of_another_model_is_refused(run: Path, bags: BagDataset, tmp_path: Path) -> None:
    evaluation = evaluated(run, bags, tmp_path / "e.json")
    for error, wrong in (
        (ModelError, {**evaluation, "provenance": {**evaluation["provenance"], "weights_sha256": "0" * 64}}),
        (ModelError, {**evaluation, "provenance": {}}),
        (ConfigError, {**evaluation, "provenance": 3}),
        (ConfigError, {"format": "something else"}),
    ):
        write_json(tmp_path / "wrong.json", wrong)
        with pytest.raises(error) as refused:
            write_card(run, evaluation=tmp_path / "wrong.json")
        assert refused.value.item == "the evaluation"
    assert not (run / CARD).exists()


def test_a_card_is_not_replaced_unasked(run: Path) -> None:
    write_card(run, title="mine")
    with pytest.raises(StorageError, match="--overwrite"):
        write_card(run)
    assert "# mine" in (run / CARD).read_text()
    assert "# run" in write_card(run, overwrite=True).read_text()


def test_push_returns_the_address_at_the_hub_that_is_used(
    run: Path, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "https://hub.hospital.org")
    write_card(run)
    assert push(run, "someone/model") == "https://hub.hospital.org/someone/model"


def test_a_model_comes_back_as_it_went(run: Path, bags: BagDataset, hub: Path, tmp_path: Path) -> None:
    model = miue.Model.load(run)
    goals = {"deferral": None, "class_names": ["0", "1"], "settings": {"allow_training_bags": True}}
    miue.calibrate(model.predict(bags), **goals).save(run / "calibration.json")  # type: ignore[arg-type]
    write_card(run)
    assert push(run, "someone/model") == "https://huggingface.co/someone/model"
    sent = {file.name for file in (hub / "someone" / "model").iterdir()}
    files = {"config.json", "model.safetensors", "distances.safetensors", "calibration.json", "validation.json"}
    assert sent == {*files, CARD}

    pulled = pull("someone/model", tmp_path / "pulled")
    ours, theirs = miue.Model.load(run).predict(bags), pulled.predict(bags)
    assert theirs.bags.decisions is not None
    assert ours.bags.decisions is not None
    assert list(ours.bags.decisions.decision) == list(theirs.bags.decisions.decision)
    assert ours.bags.uncertainties().keys() == theirs.bags.uncertainties().keys()
    for name, values in ours.bags.uncertainties().items():
        assert np.array_equal(values, theirs.bags.uncertainties()[name])
    assert {file.name for file in (tmp_path / "pulled").iterdir()} == sent


def test_files_that_are_not_those_of_the_card_are_refused(run: Path, hub: Path, tmp_path: Path) -> None:
    """Distances that lost a bit on the way, or did not come, would call other bags out of distribution."""
    write_card(run)
    push(run, "someone/model")
    distances = hub / "someone/model" / "distances.safetensors"
    whole = distances.read_bytes()
    distances.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    of_repository = "of repository 'someone/model' of the .*: expected a file that config.json lists"
    with pytest.raises(StorageError, match=f"'distances.safetensors' {of_repository}, got another.*; pull again"):
        pull("someone/model", tmp_path / "pulled")
    distances.write_bytes(whole)
    (hub / "someone/model" / "validation.json").unlink()
    with pytest.raises(StorageError, match=f"'validation.json' {of_repository}, got none; pull again"):
        pull("someone/model", tmp_path / "pulled")
    assert not (tmp_path / "pulled").exists()


def test_a_pulled_model_is_pushed_again_with_its_card(run: Path, hub: Path, tmp_path: Path) -> None:
    write_card(run)
    push(run, "someone/model")
    assert "splits.csv" not in (hub / "someone/model" / "config.json").read_text()
    pull("someone/model", tmp_path / "pulled")
    push(tmp_path / "pulled", "someone/else")
    names = [path.name for path in (hub / "someone/model").iterdir()]
    for name in names:
        assert (hub / "someone/else" / name).read_bytes() == (hub / "someone/model" / name).read_bytes()


def test_nothing_of_an_earlier_model_stays_in_a_repository(
    run: Path, bags: BagDataset, hub: Path, tmp_path: Path
) -> None:
    """With a calibration of other weights, the pulled model would refuse to predict."""
    goals = {"deferral": None, "class_names": ["0", "1"], "settings": {"allow_training_bags": True}}
    calibration = miue.calibrate(miue.Model.load(run).predict(bags), **goals)  # type: ignore[arg-type]
    calibration.save(run / "calibration.json")
    write_card(run)
    push(run, "someone/model")
    (hub / "someone/model" / "notes.txt").write_text("ours")
    miue.train(bags, out=tmp_path / "b", settings={"max_epochs": 1, "seed": 7, "device": "cpu"}, progress=False)
    write_card(tmp_path / "b")
    push(tmp_path / "b", "someone/model")
    assert not (hub / "someone/model" / "calibration.json").exists()
    assert (hub / "someone/model" / "notes.txt").read_text() == "ours"
    pull("someone/model", tmp_path / "pulled").predict(bags)
    shutil.copy(run / "calibration.json", hub / "someone/model")
    with pytest.raises(StorageError, match="'calibration.json' of repository .* got one that it does not list"):
        pull("someone/model", tmp_path / "again")


def test_a_name_that_no_repository_has_is_said(tmp_path: Path) -> None:
    for call in (lambda: pull("./runs/model", tmp_path / "out"), lambda: pull("a/b/c", tmp_path / "out")):
        with pytest.raises(StorageError, match="a name such as OWNER/NAME, got"):
            call()


def test_a_pull_needs_room_where_the_model_is_written_alone(
    run: Path, hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of temporary files is often small, or in memory."""
    write_card(run)
    push(run, "someone/model")

    def none_there() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", none_there)
    pull("someone/model", tmp_path / "pulled")
    assert {path.name for path in (tmp_path / "pulled").iterdir()} <= {*MODEL_FILES, CARD}


def test_a_repository_may_hold_more_but_nothing_else_is_fetched(run: Path, hub: Path, tmp_path: Path) -> None:
    write_card(run)
    push(run, "someone/model")
    (hub / "someone" / "model" / "modeling.py").write_text("raise SystemExit")
    (hub / "someone" / "model" / "pytorch_model.bin").write_bytes(b"pickle")
    pull("someone/model", tmp_path / "pulled")
    assert not {"modeling.py", "pytorch_model.bin"} & {file.name for file in (tmp_path / "pulled").iterdir()}


def test_what_cannot_be_loaded_is_not_left_behind(run: Path, hub: Path, tmp_path: Path) -> None:
    write_card(run)
    push(run, "someone/model")
    (hub / "someone" / "model" / "model.safetensors").write_bytes(b"cut off")
    said = "^'model.safetensors' of repository 'someone/model' of the .*, ask who maintains the repository$"
    with pytest.raises(StorageError, match=said):
        pull("someone/model", tmp_path / "pulled")
    (hub / "someone" / "model" / CARD).unlink()
    (hub / "someone" / "model" / "config.json").write_text('{"model_type": "bert"}')
    said = "^model config 'config.json' of repository 'someone/model' of .* got a file that states no format"
    with pytest.raises(StorageError, match=said):
        pull("someone/model", tmp_path / "pulled")
    assert not (tmp_path / "pulled").exists()
    with pytest.raises(StorageError, match="no such repository"):
        pull("someone/nothing", tmp_path / "pulled")


@pytest.mark.parametrize("kept", [(), ("model.safetensors",), ("config.json", CARD)])
def test_a_repository_without_a_model_is_named(
    kept: tuple[str, ...], run: Path, hub: Path, tmp_path: Path
) -> None:
    """Not the folder that the files were fetched to, which nobody named and which is gone."""
    write_card(run)
    push(run, "someone/model")
    for file in (hub / "someone" / "model").iterdir():
        if file.name not in kept:
            file.unlink()
    with pytest.raises(StorageError, match="repository 'someone/model' of .*, got a repository without") as error:
        pull("someone/model", tmp_path / "pulled")
    assert ".tmp" not in str(error.value)
    assert [file.name for file in tmp_path.iterdir() if "pulled" in file.name] == []


def test_another_model_than_that_of_the_card_is_refused(
    run: Path, bags: BagDataset, hub: Path, tmp_path: Path
) -> None:
    write_card(run)
    push(run, "someone/model")
    model = miue.train(bags, settings={"max_epochs": 1, "device": "cpu"}, progress=False)
    replace(model, training_bags=None).save(tmp_path / "other")
    for name in MODEL_FILES:
        (hub / "someone/model" / name).unlink(missing_ok=True)
    shutil.copytree(tmp_path / "other", hub / "someone/model", dirs_exist_ok=True)
    with pytest.raises(StorageError, match="expected the config.json of its card, .*, got one with SHA-256"):
        pull("someone/model", tmp_path / "pulled")
    assert not (tmp_path / "pulled").exists()
    (hub / "someone/model" / CARD).write_text("# a card of somebody's own")
    assert pull("someone/model", tmp_path / "pulled").weights_sha256 == model.weights_sha256


def answered(kind: type[Exception], said: str) -> Exception:
    error = kind.__new__(kind)
    error.args = (said,)
    return error


@pytest.mark.parametrize(
    ("fault", "wanted", "got"),
    [
        (errors.HfHubHTTPError.__bases__[0]("timed out"), "to reach it", "timed out"),
        (json.JSONDecodeError("Expecting value", "<html>", 0), "to reach it", "Expecting value"),
        (OSError("ConnectError: refused\nAn error happened"), "to reach it", "ConnectError: refused An error"),
        (answered(errors.GatedRepoError, "403\n\ngated"), "leave to use it", "403 gated"),
    ],
)
def test_what_goes_wrong_on_the_way_is_said_with_what_helps(
    fault: Exception, wanted: str, got: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(StorageError) as refused:
        pull("someone/model", tmp_path / "out", revision="v9")
    assert (refused.value.item[:26], refused.value.wanted) == ("repository 'someone/model'", wanted)
    assert refused.value.got.startswith(got)
    assert not list(tmp_path.iterdir())


def test_only_a_model_with_its_own_card_is_pushed(run: Path, bags: BagDataset, hub: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError) as refused:
        push(run, "someone/model")
    assert refused.value.got == "none"
    write_card(run)
    other = miue.train(bags, settings={"max_epochs": 1, "seed": 7, "device": "cpu"}, progress=False)
    other.save(tmp_path / "other")
    shutil.copy(run / CARD, tmp_path / "other" / CARD)
    with pytest.raises(StorageError) as refused:
        push(tmp_path / "other", "someone/model")
    assert refused.value.got == "a card of other files"
    assert not hub.exists()


def test_without_the_package_the_extra_is_named(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for call in (lambda: write_card(run), lambda: push(run, "someone/model"), lambda: pull("a/b", tmp_path / "b")):
        with pytest.raises(ConfigError) as refused:
            call()
        assert refused.value.fix == "pip install 'miue[hub]'"


def test_the_commands_go_from_predictions_to_a_pulled_model(
    run: Path, bags: BagDataset, hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_store(tmp_path / "store", bags, made_by={"name": "test"})
    for command in (
        "predict run store --part all --out predictions",
        "evaluate predictions --out evaluation.json --allow-training-bags",
        "hub card run --evaluation evaluation.json --license apache-2.0",
        "hub push run someone/model",
        "hub pull someone/model --out pulled",
        "predict pulled store --part all --out again",
    ):
        result = CliRunner().invoke(app, command.split())
        assert result.exit_code == 0, f"{command}\n{result.output}\n{result.exception}"
    assert json.loads((tmp_path / "evaluation.json").read_text())["provenance"]["bags"] == "store"
    assert "bags of store, split all bags" in (tmp_path / "pulled" / CARD).read_text()
    first, again = (miue.read_predictions(tmp_path / name).bags for name in ("predictions", "again"))
    assert first.training_parts is not None and again.training_parts is None  # names of bags are not pushed
    assert replace(first, training_parts=None).to_arrow().equals(again.to_arrow())
