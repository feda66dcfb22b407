"""The server of the page: who is answered, that numbers and pictures are those of the predictions and slides."""

from __future__ import annotations

import csv
import io
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from made_predictions import NASTY, made_predictions, of_two_slides, on_a_slide
from made_views import SIDE, Asked, color_of, served, view_predictions, write_pyramid
from PIL import Image

from miue.bags import BagDataset
from miue.common.errors import ConfigError, MiueError
from miue.predictions import Predictions
from miue.targets import Survival
from miue.view import Content, Server, Site, VerdictFile
from miue.view.slides import Kept

SLIDE = ("a", "b")


@pytest.fixture(scope="module")
def slides(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slides")
    for name in SLIDE:
        write_pyramid(folder / f"{name}.tif")
    return folder


@pytest.fixture
def asked(tmp_path: Path, slides: Path) -> Any:
    with served(view_predictions(SLIDE), tmp_path / "verdicts.csv", slides=slides) as running:
        yield running


def picture(body: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(body)).convert("RGB")).astype(int)


@pytest.mark.parametrize("path", ["run.json", "", "verdicts.json", "bags/0/0/tile/11/0/0"])
def test_nothing_is_answered_without_the_token(asked: Asked, path: str) -> None:
    wrong = asked.token[:-1] + ("A" if asked.token[-1] != "A" else "B")
    for start in ("", "x/", wrong + "/", asked.token[:-1] + "/", "%C3%BC/", "\xfc/"):
        answer, body = asked.ask_plainly(f"/{quote(start, safe='/%')}{path}")
        assert answer.status in (403, 400), (start, body)
    assert asked.ask(path)[0].status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example:80", "localhost.x", ""]
)
def test_a_page_of_another_name_is_refused(asked: Asked, host: str) -> None:
    assert asked.ask("run.json", Host=host)[0].status == 403
    assert asked.ask("run.json", Host="localhost:1234")[0].status == 200  # through a tunnel, say


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1", "http://localhost"])
def test_a_script_of_another_page_is_refused(asked: Asked, origin: str) -> None:
    assert asked.ask("run.json", Origin=origin)[0].status == 403
    assert asked.say(0, "tumor", Origin=origin)[0] == 403
    assert asked.ask("run.json", Origin=f"http://{asked.host}")[0].status == 200


def test_a_verdict_comes_from_the_page_alone(asked: Asked) -> None:
    given = {"bag": 0, "label": "tumor", "note": ""}
    plain = {"Origin": f"http://{asked.host}", "Content_Type": "text/plain"}
    assert asked.ask("verdicts", "POST", given, **plain)[0].status == 403
    assert asked.ask("verdicts", "POST", given, Content_Type="application/json")[0].status == 403
    assert asked.ask("run.json", "POST", given, Origin=f"http://{asked.host}")[0].status == 403
    assert asked.ask_plainly("/x/verdicts", "POST", given, Content_Type="application/json")[0].status == 403
    assert asked.ask("verdicts", "PUT", given)[0].status == 501
    assert not asked.server.site.content.verdicts.path.exists()


@pytest.mark.parametrize(
    "path",
    [
        *("../../../etc/passwd", "..%2f..%2fetc/passwd", "/etc/passwd", "page/index.html", "view.css/../view.css"),
        *("bags/../0", "bags/-1", "bags/2", "bags/0/1/values", "bags/0/0/tile/11/0", "bags/0/0/tile/11/0/0/0"),
        *("bags/0/0/tile/11/99/0", "bags/0/0/tile/99/0/0", "bags/0/0/tile/0/0/0", "bags/0/0/patch/384", "bags/٣"),
        *("bags/0/0/patch", "bags/0/0/tile/..", "__init__.py", "bags/99999999999999999999", "index.html"),
    ],
)
def test_what_is_not_there_is_not_found(asked: Asked, path: str) -> None:
    answer, body = asked.ask(quote(path, safe="/%"))
    assert answer.status == 404, body
    assert b"root:" not in body


def test_pages_may_load_nothing_from_elsewhere(asked: Asked) -> None:
    for path in ("", "view.css", "openseadragon.min.js", "run.json", "nothing"):
        answer = asked.ask(path)[0]
        assert "default-src 'none'" in str(answer.getheader("Content-Security-Policy"))
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        assert answer.getheader("Referrer-Policy") == "no-referrer"
    assert "unsafe" not in str(answer.getheader("Content-Security-Policy"))


def test_a_port_in_use_is_an_error(asked: Asked) -> None:
    with pytest.raises(ConfigError) as caught:
        Server(asked.server.site, asked.server.server_address[1])
    assert caught.value.item == "port"


def test_the_worklist_is_in_its_order(asked: Asked) -> None:
    overview, bags = asked.json("run.json"), view_predictions(SLIDE).bags
    cases = overview["cases"]
    assert [one["order"] for one in cases] == [1, 2]
    far = bags.scores["knn_mean"]
    assert [one["name"] for one in cases] == [SLIDE[row] for row in np.argsort(-far)]
    assert [SLIDE[one["bag"]] for one in cases] == [one["name"] for one in cases]
    assert overview["choices"] == ["normal", "tumor"]


def test_a_bag_is_as_it_was_predicted(asked: Asked) -> None:
    bags = view_predictions(SLIDE).bags
    for row in range(2):
        bag = asked.json(f"bags/{row}")
        assert bag["probabilities"] == bags.probabilities[row].tolist()
        assert {one["name"]: one["value"] for one in bag["uncertainties"]} == {
            name: values[row] for name, values in bags.uncertainties().items()
        }
        (shown,) = bag["pictures"]
        assert (shown["width"], shown["height"]) == (24 * SIDE, 16 * SIDE)
        assert (shown["patchSize"], shown["count"], shown["problem"]) == (SIDE, 384, "")
        assert shown["micronsPerPixel"] == pytest.approx(0.5)


def test_numbers_of_patches_are_those_that_were_predicted(asked: Asked) -> None:
    instances = view_predictions(SLIDE).instances
    assert instances is not None and instances.coords is not None
    columns = [one["name"] for one in asked.json("run.json")["columns"]]
    for row, name in enumerate(SLIDE):
        own = instances.of_bags([name])
        body = asked.ask(f"bags/{row}/0/values")[1]
        whole = np.frombuffer(body, "<i4").reshape(3 + len(columns), -1)
        assert own.coords is not None
        assert whole[:2].T.tolist() == own.coords.values.tolist()
        values = dict(zip(columns, whole[3:].view("<f4"), strict=True))
        for number, p in enumerate(own.probabilities.T):
            assert values[f"p_{number}"].tolist() == p.astype(np.float32).tolist()
        for measure in ("entropy", "mutual_information", "vacuity"):
            assert values[measure].tolist() == own.uncertainty(measure).astype(np.float32).tolist()
        assert values["score_knn"].tolist() == own.scores["knn"].astype(np.float32).tolist()


def test_a_layer_has_the_range_of_the_run_and_a_color_for_each_part_of_it(asked: Asked) -> None:
    overview, instances = asked.json("run.json"), view_predictions(SLIDE).instances
    assert instances is not None
    layers = {one["column"]: one for one in overview["layers"]}
    assert list(layers)[:2] == ["p_0", "p_1"]
    assert {"expected_entropy", "mutual_information", "score_knn"} <= set(layers)
    assert layers["score_knn"]["range"] == [0.0, instances.scores["knn"].max()]
    assert all(len(overview["maps"][one["map"]]) == 256 for one in layers.values())


@pytest.mark.parametrize("level", [11, 10, 9])
def test_tiles_show_the_slide_where_it_is(asked: Asked, level: int) -> None:
    scale = 2 ** (11 - level)
    assert asked.json("bags/0")["pictures"][0]["maxLevel"] == 11
    answer, body = asked.ask(f"bags/0/0/tile/{level}/0/0")
    assert answer.getheader("Content-Type") == "image/jpeg; charset=utf-8"
    tile = picture(body)
    for column, row in ((0, 0), (3, 1), (6, 6)):
        middle = tile[int((row + 0.5) * SIDE / scale), int((column + 0.5) * SIDE / scale)]
        assert np.abs(middle - color_of(column, row)).max() <= 6


def test_the_picture_of_a_patch_is_that_of_its_square(asked: Asked) -> None:
    for number, place in ((0, (0, 0)), (25, (1, 1)), (383, (23, 15))):
        shown = picture(asked.ask(f"bags/1/0/patch/{number}")[1])
        assert shown.shape == (SIDE, SIDE, 3)
        assert np.abs(shown[SIDE // 2, SIDE // 2] - color_of(*place)).max() <= 6


def test_without_slides_there_is_the_map_of_the_patches(tmp_path: Path) -> None:
    with served(view_predictions(SLIDE), tmp_path / "v.csv") as running:
        (shown,) = running.json("bags/0")["pictures"]
        assert (shown["isSlide"], shown["width"], shown["height"]) == (False, 24 * SIDE, 16 * SIDE)
        assert running.ask("bags/0/0/tile/11/0/0")[0].status == 404
        assert running.ask("bags/0/0/values")[0].status == 200


def test_a_slide_that_cannot_be_shown_is_said_and_its_patches_are(tmp_path: Path) -> None:
    folder = tmp_path / "slides"
    write_pyramid(folder / "small.tif", columns=12)
    (folder / "cut.svs").write_bytes(b"II*\0" + bytes(100))
    names = ("small", "cut", "gone")
    with served(view_predictions(names), tmp_path / "v.csv", slides=folder) as running:
        for row, words in enumerate(
            ("192 of 384 patches beside it", "TIFF that it does not read", "no such file")
        ):
            (shown,) = running.json(f"bags/{row}")["pictures"]
            assert words in shown["problem"]
            assert not shown["isSlide"]
            assert shown["count"] == 384
            assert running.ask(f"bags/{row}/0/tile/11/0/0")[0].status == 404


def test_a_verdict_is_a_row_and_the_last_one_counts(asked: Asked) -> None:
    file = asked.server.site.content.verdicts.path
    assert asked.json("verdicts.json") == {}
    status, said = asked.say(1, "tumor", " in the\nnode ")
    assert (status, said["label"], said["note"], said["person"]) == (200, "tumor", "in the node", "Ada")
    asked.say(0, "cannot tell")
    asked.say(1, "normal")
    assert {bag: one["label"] for bag, one in asked.json("verdicts.json").items()} == {
        "a": "cannot tell",
        "b": "normal",
    }
    asked.say(1, "")  # taken back
    assert asked.json("verdicts.json")["b"]["label"] == ""
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert [(row["bag_id"], row["label"]) for row in rows] == [
        *(("b", "tumor"), ("a", "cannot tell"), ("b", "normal"), ("b", "")),
    ]
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)


@pytest.mark.parametrize(
    ("bag", "label", "note"),
    [
        *((2, "tumor", ""), (-1, "tumor", ""), ("a", "tumor", ""), (True, "tumor", ""), (0.0, "tumor", "")),
        *((0, "other", ""), (0, None, ""), (0, ["tumor"], ""), (0, "tumor", 5), (0, "tumor", "x" * 4001)),
    ],
)
def test_a_verdict_on_nothing_is_refused(asked: Asked, bag: Any, label: Any, note: Any) -> None:
    assert asked.say(bag, label, note)[0] == 400
    assert not asked.server.site.content.verdicts.path.exists()


@pytest.mark.parametrize("body", ["", "{", "[]", "[" * 10_000, '{"bag": 0}', "3", "x" * 70_000])
def test_what_is_no_verdict_is_refused(asked: Asked, body: str) -> None:
    headers = {"Origin": f"http://{asked.host}", "Content_Type": "application/json"}
    assert asked.ask("verdicts", "POST", body, **headers)[0].status == (413 if len(body) > 65_536 else 400)


def test_two_who_write_one_file_lose_nothing(tmp_path: Path) -> None:
    names = tuple(f"bag {number}" for number in range(40))
    predictions, file = view_predictions(names, 1, 1), tmp_path / "v.csv"
    with served(predictions, file, "Ada") as ada, served(predictions, file, "Bob") as bob:
        with ThreadPoolExecutor(8) as pool:
            every = [pool.submit(who.say, bag, "tumor") for bag in range(40) for who in (ada, bob)]
            assert {one.result()[0] for one in every} == {200}
        assert ada.json("verdicts.json") == bob.json("verdicts.json")
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert sorted((row["bag_id"], row["person"]) for row in rows) == sorted(
        (name, who) for name in names for who in ("Ada", "Bob")
    )


def test_a_full_disk_leaves_the_file_as_it_was(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    asked.say(0, "tumor")
    file = asked.server.site.content.verdicts.path
    before = file.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        status, said = asked.say(1, "tumor")
    assert status == 507
    assert "No space left on device" in said["error"]
    assert file.read_bytes() == before
    assert asked.say(1, "tumor")[0] == 200


@pytest.mark.parametrize("name", [NASTY, "=1+1", 'a,b\n"c"', "../../x", "名前", " b"])
def test_names_and_notes_come_back_as_they_are(tmp_path: Path, name: str) -> None:
    with served(view_predictions((name, "b2"), 2, 2), tmp_path / "v.csv", NASTY, slides=tmp_path) as running:
        assert running.json("bags/0")["name"] == name
        assert running.say(0, "tumor", NASTY)[0] == 200
        (bag,) = running.json("verdicts.json").items()
        assert (bag[0], bag[1]["note"], bag[1]["person"]) == (name, NASTY, NASTY)
        assert running.say(0, "tumor", "=cmd()")[1]["note"] == "'=cmd()"


def test_a_file_of_something_else_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("bag_id,label\na,tumor\n")
    with pytest.raises(MiueError, match="verdicts"):
        VerdictFile(tmp_path / "labels.csv", "Ada").check()


def test_no_more_is_kept_than_asked() -> None:
    kept: Kept[bytes] = Kept(10, len)
    made = [kept.get(key, lambda key=key: bytes(4)) for key in "abca"]  # type: ignore[misc]
    assert len(made) == 4
    assert kept.get("c", lambda: b"new") == bytes(4)
    assert kept.get("b", lambda: b"new") == b"new"  # left out for a


@pytest.mark.long
def test_the_command_says_where_the_page_is_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    view_predictions(SLIDE).save(tmp_path / "predictions")
    words = [sys.executable, "-m", "miue", "view", "predictions", "--no-browser", "--person", "Ada"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=os.environ) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith("2 bags at http://127.0.0.1:")
        assert "predictions.verdicts.csv" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=30)
    assert running.returncode == 0


def test_a_bag_of_two_slides_shows_both(tmp_path: Path) -> None:
    predictions = of_two_slides(on_a_slide(made_predictions(3, 12)))
    content = Content(predictions, VerdictFile(tmp_path / "v.csv", "Ada"))
    names = [one.name for one in content.pictures(1)]
    assert names == ["left of bag 0001", "right of bag 0001"]
    assert Site(content).content is content


def images_and_predictions(per_bag: int = 7) -> tuple[BagDataset, Predictions]:
    predictions = made_predictions(3, per_bag)
    images = [np.full((per_bag, 8, 10, 3), 60 * number, np.uint8) for number in range(3)]
    for of_bag in images:
        of_bag[..., 0] = 30 * np.arange(per_bag)[:, None, None]
    return BagDataset.from_arrays(images, ids=predictions.bags.bag_ids.astype(str).tolist()), predictions


def test_bags_of_images_show_each_image_at_its_instance(tmp_path: Path) -> None:
    store, predictions = images_and_predictions()
    with served(predictions, tmp_path / "v.csv", store=store) as running:
        (shown,) = running.json("bags/2")["pictures"]
        assert (shown["isSlide"], shown["count"], shown["patchSize"]) == (True, 7, 64)
        assert (shown["width"], shown["height"]) == (3 * 64, 3 * 64)
        for number in range(7):
            patch = picture(running.ask(f"bags/2/0/patch/{number}")[1])
            assert np.abs(patch[20, 20] - [30 * number, 120, 120]).max() <= 8
        x, y = np.frombuffer(running.ask("bags/2/0/values")[1], "<i4")[:14].reshape(2, 7)
        tile = picture(running.ask(f"bags/2/0/tile/{shown['maxLevel']}/0/0")[1])
        assert np.abs(tile[y[5] + 20, x[5] + 20] - [150, 120, 120]).max() <= 8


def test_a_store_of_other_bags_is_said(tmp_path: Path) -> None:
    store, predictions = images_and_predictions()
    with served(predictions, tmp_path / "v.csv", store=store.subset([0, 1])) as running:
        (shown,) = running.json("bags/2")["pictures"]
        assert "its 7 instances in the store" in shown["problem"]


def test_instances_without_a_place_are_shown_in_their_order(tmp_path: Path) -> None:
    with served(made_predictions(3, 7), tmp_path / "v.csv") as running:
        (shown,) = running.json("bags/1")["pictures"]
        assert (shown["isSlide"], shown["count"], shown["problem"]) == (False, 7, "")
        x, y = np.frombuffer(running.ask("bags/1/0/values")[1], "<i4")[:14].reshape(2, 7)
        assert list(zip(y, x, strict=True)) == sorted(zip(y, x, strict=True))


def test_a_store_of_features_tells_the_places(tmp_path: Path) -> None:
    predictions = made_predictions(3, 4)
    places = [np.array([[0, 0], [256, 0], [0, 256], [512, 512]]) + 256 * number for number in range(3)]
    features = [np.zeros((4, 5), np.float32)] * 3
    store = BagDataset.from_arrays(features, ids=predictions.bags.bag_ids.astype(str).tolist(), coords=places)
    content = Content(predictions, VerdictFile(tmp_path / "v.csv", "Ada"), store=store)
    (shown,) = content.pictures(2)
    assert shown.patches is not None
    assert shown.patches.coords.tolist() == places[2].tolist()
    assert shown.patches.size == 256


def test_times_have_a_layer_of_their_risk_and_no_class_to_choose(tmp_path: Path) -> None:
    made = on_a_slide(made_predictions(3, 8, classes=4))
    target = Survival(edges=(1.0, 2.0, 4.0))
    known = made.provenance.model_copy(update={"classes": target.class_names, "target": target})
    assert made.instances is not None
    bags, instances = replace(made.bags, target=target), replace(made.instances, target=target)
    with served(replace(made, bags=bags, instances=instances, provenance=known), tmp_path / "v.csv") as running:
        overview, bag = running.json("run.json"), running.json("bags/1")
        assert overview["layers"][0]["column"] == "risk"
        assert overview["choices"] == []
        assert bag["values"]["risk"] == pytest.approx(target.risk(made.bags.probabilities)[1])
        columns = [one["name"] for one in overview["columns"]]
        values = np.frombuffer(running.ask("bags/1/0/values")[1], "<f4").reshape(3 + len(columns), 8)
        wanted = target.risk(instances.of_bags([str(bags.bag_ids[1])]).probabilities)
        assert values[3 + columns.index("risk")] == pytest.approx(wanted, rel=1e-6)
        assert running.say(1, "cannot tell")[0] == 200
