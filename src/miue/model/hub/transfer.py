"""Model folders to and from the Hugging Face Hub (``pip install miue[hub]``)."""

from __future__ import annotations

import json
import os
import re
import shutil
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from miue.common.digests import FILES
from miue.common.errors import MiueError, StorageError, cannot_write, causes_of, no_room_behind
from miue.common.extras import import_extra
from miue.common.files import atomic_folder, file_sha256
from miue.common.folder_kinds import MODEL
from miue.model.folder import CONFIG, MODEL_FILES, SAVE_AGAIN, WEIGHTS
from miue.model.hub.card import CARD, shared_config, text_sha256
from miue.model.model import Model

PULL_AGAIN = "pull again; if it says the same, ask who maintains the repository"


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
    folder, hub = Path(folder), _hub()
    model = Model.load(folder, trust=trust)
    card, config = _read_card(folder), shared_config(folder)
    if text_sha256(config) not in card:
        raise StorageError(
            item=f"model {str(folder)!r}",
            wanted=f"a card, {CARD}, of this model, which lists the SHA-256 of its {CONFIG}",
            got="a card of other files" if card else "none",
            fix=f"write one, and read it: miue hub card {folder}{' --overwrite' * bool(card)}",
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
    out, hub = Path(out), _hub()
    with atomic_folder(out, MODEL, overwrite=overwrite) as folder, TemporaryDirectory(dir=folder) as fetched:
        try:
            names = [CARD, *MODEL_FILES]
            hub.snapshot_download(repository, revision=revision, local_dir=fetched, allow_patterns=names)
        except _errors() as error:
            if full := no_room_behind(error):
                raise cannot_write(Path(fetched), full) from error
            raise _refused(repository, error, revision) from error
        missing = [name for name in (CONFIG, WEIGHTS) if not (Path(fetched) / name).is_file()]
        if missing:
            raise StorageError(
                item=f"repository {repository!r} of the Hugging Face Hub",
                wanted=f"a model of miue, with {CONFIG} and {WEIGHTS}",
                got=f"a repository without {' and '.join(missing)}",
                fix="check the name and the revision, or push the model again",
            )
        for name in names:
            if (Path(fetched) / name).is_file():
                shutil.copyfile(Path(fetched) / name, folder / name)
        _check_card(folder, repository)
        return _loaded(folder, repository, trust=trust)


def _check_card(folder: Path, repository: str) -> None:
    """Raise where the card that was fetched names files by their SHA-256, and not the config.json that was.

    Raises:
        StorageError: the card or config.json belongs to another model.
    """
    named, found = re.findall(r"\b[0-9a-f]{64}\b", _read_card(folder)), file_sha256(folder / CONFIG)
    if named and found not in named:
        raise StorageError(
            item=f"repository {repository!r} of the Hugging Face Hub",
            wanted=f"the {CONFIG} of its card, {CARD}",
            got=f"one with SHA-256 {found}, which the card does not list",
            fix=PULL_AGAIN,
        )


def _loaded(folder: Path, repository: str, *, trust: bool) -> Model:
    """Return the fetched model; what is wrong with it is said of the repository, not of a folder that is gone."""
    try:
        return Model.load(folder, trust=trust)
    except MiueError as error:
        file = error.item.replace(f"{folder}{os.sep}", "").replace(f" {str(folder)!r}", "")
        item = f"{file} of repository {repository!r} of the Hugging Face Hub"
        of_files = isinstance(error, StorageError) or error.fix == SAVE_AGAIN
        fix = PULL_AGAIN if of_files else error.fix
        raise error.replaced(item=item, fix=fix) from error


def _read_card(folder: Path) -> str:
    """Return the text of a model's card, nothing where there is none."""
    return (folder / CARD).read_text("utf-8", "replace") if (folder / CARD).is_file() else ""


def _hub() -> Any:
    return import_extra("huggingface_hub", "the Hugging Face Hub", "hub")


def _errors() -> tuple[type[Exception], ...]:
    """Return what huggingface_hub raises: its own errors, those of names, of the network and of odd answers."""
    from huggingface_hub.errors import HfHubHTTPError

    return *HfHubHTTPError.__bases__, OSError, ValueError  # the first base is that of all errors of its client


def _refused(repository: str, error: Exception, revision: str | None = None) -> StorageError:
    """Return what the Hub, or the way there, said, with what helps against just that."""
    from huggingface_hub.errors import HFValidationError, RevisionNotFoundError

    item = f"repository {repository!r} of the Hugging Face Hub"
    if isinstance(error, HFValidationError):
        fix = "correct the name; a model in a folder of this machine is used as it is"
        return StorageError(item=item, wanted="a name such as OWNER/NAME", got=repr(repository), fix=fix)
    if isinstance(error, RevisionNotFoundError):
        wanted, fix = f"a branch, tag or commit {revision or 'main'!r}", "see on its page which it has"
        return StorageError(item=item, wanted=wanted, got="none of that name", fix=fix)
    status, _, reason = (str(error).strip() or type(error).__name__).partition("\n\n")
    got = " ".join(part.split("\n")[0] for part in (status, reason) if part).removeprefix("Got: ")
    got = re.sub(r"\s*\(Request ID: [^)]*\)\s*", " ", got).strip().rstrip(".")
    if isinstance(error, json.JSONDecodeError):
        got = f"an answer that is not the Hub's: {got}"
    wanted, fix = _wanted_of_hub(error)
    return StorageError(item=item, wanted=wanted, got=got, fix=fix)


def _wanted_of_hub(error: Exception) -> tuple[str, str]:
    """Return what was wanted of the Hub, and what to do, by the status that it answered, if it did."""
    from huggingface_hub.constants import is_offline_mode
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError

    log_in = "log in with: hf auth login, or set HF_TOKEN, which comes first"
    answers = (cause.response.status_code for cause in causes_of(error) if isinstance(cause, HfHubHTTPError))
    status = next(answers, None)
    if is_offline_mode():
        return "to reach it", "unset HF_HUB_OFFLINE"
    if status is None:
        return "to reach it", "check the network, and HF_ENDPOINT if it is set"
    if isinstance(error, GatedRepoError):
        return "leave to read it", f"ask for access on its page, and {log_in}"
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "an answer", "wait a while, then give the same command again"
    if status == HTTPStatus.FORBIDDEN:
        return "leave to use it", f"if that is not the reason itself, choose a token with more rights: {log_in}"
    return "leave to use it", f"check the name and, if it is private, {log_in}"
