"""Registries: names, aliases, parts registered at run time, and what installed packages bring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import miue
from miue.bags.names import strip_endings
from miue.common import parts
from miue.common.errors import ConfigError
from miue.common.registry import Registry
from miue.model.part import find_part

REGISTRIES = {name: value for name, value in vars(parts).items() if isinstance(value, Registry)}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with one whole and one broken entry point, on the path as an installed one is."""
    about = tmp_path / "numbers_of_others-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: numbers-of-others\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(
        "[miue.numbers]\ntau = math:tau\nLost = numbers_of_nobody:lost\npi = math:pi\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def numbers() -> Registry[float]:
    return Registry("number", "miue.numbers", {"pi": "math:pi"}, aliases={"π": "pi"})


@pytest.mark.parametrize("name", REGISTRIES)
def test_every_part_of_miue_is_where_its_registry_says(name: str) -> None:
    registry = REGISTRIES[name]
    assert len(registry.own_names()) > 3
    assert all(callable(registry[part]) for part in registry.own_names())


def test_names_have_no_case_and_an_alias_is_the_same_part() -> None:
    assert miue.METHODS["MIREL"] is miue.METHODS["mirel"]
    assert miue.METHODS["deterministic"] is miue.METHODS["softmax"]
    assert "Deterministic" in miue.METHODS and "deterministic" not in list(miue.METHODS)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="network 'atention': .* did you mean 'attention'"):
        miue.NETWORKS["atention"]
    assert "atention" not in miue.NETWORKS and miue.NETWORKS.get("atention") is None


def test_a_name_like_none_may_be_that_of_a_package_that_is_not_installed() -> None:
    with pytest.raises(ConfigError, match="got 'zzz'; choose one of these, or install the package that brings it"):
        miue.NETWORKS["zzz"]


@pytest.mark.parametrize("name", ["my_parts.Pooling", "my_parts.Attention"])
def test_an_import_path_with_a_dot_before_the_class_is_answered_with_one_with_a_colon(name: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean '{name.replace('.', ':')}'"):
        miue.NETWORKS[name]


def test_a_part_can_be_registered_and_replaced_but_not_take_a_name_of_miue() -> None:
    registry = numbers()
    assert registry.register("Two", 2.0) == 2.0
    registry.register("two", 2.5)
    assert registry["TWO"] == 2.5 and list(registry) == ["pi", "two"]
    for name in ("Pi", "π"):
        with pytest.raises(ConfigError, match="a name that miue does not use itself"):
            registry.register(name, 3.0)


@pytest.mark.parametrize(
    ("registry", "name", "message"),
    [
        (
            parts.METHODS,
            "package:Class",
            "method 'package:Class': expected a name without colons, got 'package:Class'",
        ),
        (parts.NETWORKS, " ", "network ' ': expected a name without colons, got ' '"),
        (parts.NETWORKS, 3, "got 3 of type int"),
        (parts.ENCODERS, "Auto", "encoder 'Auto': .* got 'auto', which is no encoder but a choice of its own"),
        (parts.DISTANCES, "none", "got 'none', which is no distance but a choice of its own"),
        (parts.READERS, "bag", "an ending of file names that begins with its only dot, such as '.npz', got 'bag'"),
        (parts.READERS, ".tar.gz", "its only dot, such as '.npz', got '.tar.gz'"),
    ],
)
def test_a_name_that_no_part_can_be_found_by_is_refused(registry: Registry[Any], name: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.register(name, object())
    assert name not in list(registry)


def test_an_ending_of_others_that_no_file_has_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "endings-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: endings\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[miue.readers]\nbag = math:tau\n.bag = math:tau\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(parts.READERS, "_found", None)
    with pytest.warns(UserWarning, match="'bag' .* of the package endings 1 is left out: expected an ending"):
        assert "bag" not in parts.READERS and ".bag" in parts.READERS


def test_parts_of_installed_packages_are_found_and_a_broken_one_is_named(installed: Path) -> None:
    registry = numbers()
    with pytest.warns(UserWarning, match="'pi' .* of the package numbers-of-others 1.2 is left out"):
        assert "tau" in registry
    assert registry["tau"] > 6 and registry["pi"] < 4
    with pytest.raises(ConfigError, match="number .Lost.: .*numbers-of-others 1.2.*No module named"):
        registry["lost"]
    with pytest.warns(UserWarning, match="numbers_of_nobody"):
        assert set(dict(registry.items())) == {"pi", "tau"}
    assert registry.help() == "pi, tau or lost"


def another_package(folder: Path, entry_points: str) -> None:
    about = folder / "more_numbers-3.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: more-numbers\nVersion: 3\n")
    (about / "entry_points.txt").write_text(f"[miue.numbers]\n{entry_points}\n")


@pytest.mark.filterwarnings("ignore:the entry point 'pi'", "ignore:number 'Lost'")
def test_a_name_that_two_packages_bring_is_none_of_both(installed: Path) -> None:
    another_package(installed, "TAU = math:e\ninf = math:inf")
    registry = numbers()
    with pytest.raises(ConfigError, match="number 'tau': expected one package that brings"):
        registry["tau"]
    with pytest.raises(ConfigError, match=r"\(math:e\) of the package more-numbers 3"):
        registry["tau"]
    assert "tau" in registry and registry["inf"] > 4
    with pytest.warns(UserWarning, match="one package that brings"):
        assert "tau" not in dict(registry.items())
    registry.register("tau", 6.0)
    assert registry["tau"] == 6.0


@pytest.mark.filterwarnings("ignore:the entry point 'pi'")
def test_the_same_part_that_two_packages_bring_is_that_part(installed: Path) -> None:
    another_package(installed, "tau = math:tau")
    assert numbers()["tau"] > 6


def test_texts_of_help_name_parts_without_a_warning_and_a_part_that_is_left_out_is_warned_of_once(
    installed: Path,
) -> None:
    registry = numbers()
    assert registry.help() == "pi, tau or lost"
    with pytest.warns(UserWarning, match="the entry point 'pi'"):
        assert registry["pi"] < 4
    assert registry["tau"] > 6


def test_a_module_that_ends_the_process_on_import_is_named(installed: Path) -> None:
    (installed / "numbers_of_nobody.py").write_text("raise SystemExit(3)\n")
    with (
        pytest.warns(UserWarning, match="the entry point 'pi'"),
        pytest.raises(ConfigError, match="number .Lost.: .*SystemExit: 3"),
    ):
        numbers()["lost"]


def test_the_ending_of_a_reader_that_others_bring_is_left_out_of_the_names_of_bags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert strip_endings("slide_1.BAGL") == "slide_1.BAGL"
    monkeypatch.setitem(parts.READERS._registered, ".bagl", open)
    assert strip_endings("slide_1.BAGL") == "slide_1"
    assert strip_endings("slide_1.svs.bagl") == "slide_1"


def test_a_part_that_is_registered_takes_the_place_of_an_entry_point_that_was_used(installed: Path) -> None:
    registry = numbers()
    with pytest.warns(UserWarning, match="the entry point 'pi'"):
        assert registry["tau"] > 6
    registry.register("tau", 6.0)
    assert registry["tau"] == 6.0


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("method", "MIRELL", "did you mean 'mirel'"),
        ("method", "IEDL", "did you mean 'i-edl'"),
        ("network", "TransMIL", "did you mean 'torchmil-transmil'"),
        ("network", "CLAM", "did you mean 'torchmil-clam-sb'"),
    ],
)
def test_the_name_that_was_meant_is_found_whatever_its_case(kind: str, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_part(kind, name)


def test_the_attention_networks_have_the_names_of_the_field() -> None:
    names = {name: find_part("network", name).name for name in ("ABMIL", "abmil", "gated-ABMIL")}
    assert names == {"ABMIL": "attention", "abmil": "attention", "gated-ABMIL": "gated-attention"}
    with pytest.raises(ConfigError, match="expected a name that miue does not use itself"):
        miue.NETWORKS.register("abmil", object)


def test_the_encoder_that_suits_the_bags_is_named_in_any_case() -> None:
    assert miue.Recipe(encoder="Auto") == miue.Recipe()
