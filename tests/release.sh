# What must hold before a version is published: sdist and wheel build and are described well, the wheel that is built from the
# sdist works in a clean environment, and CITATION.cff is valid. Usage: bash tests/release.sh PYTHON, from the checkout.
set -euo pipefail
export PIP_DISABLE_PIP_VERSION_CHECK=1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$1" -m venv "$place/tools"
tools="$place/tools/bin/python"
"$tools" -m pip install --quiet "pip>=25.1"
"$tools" -m pip install --quiet --group release
rm -rf dist
"$tools" -m build --outdir dist . > "$place/build.log" || { cat "$place/build.log"; exit 1; }
"$tools" -m twine check --strict dist/*
"$place/tools/bin/cffconvert" --validate --infile CITATION.cff
"$tools" - dist <<'PYTHON'
import sys, tarfile, zipfile
from email import message_from_bytes
from pathlib import Path

[wheel], [sdist] = Path(sys.argv[1]).glob("*.whl"), Path(sys.argv[1]).glob("*.tar.gz")
names = zipfile.ZipFile(wheel).namelist()
others = sorted({name.split("/")[0] for name in names} - {"miue"})
assert len(others) == 1 and others[0].endswith(".dist-info"), f"the wheel holds more than the package: {others}"
assert "miue/py.typed" in names and any(name.endswith("licenses/LICENSE") for name in names)
metadata = message_from_bytes(zipfile.ZipFile(wheel).read(f"{others[0]}/METADATA"))
assert metadata["License-Expression"] == "Apache-2.0 AND BSD-3-Clause", metadata["License-Expression"]
assert not [extra for extra in metadata.get_all("Provides-Extra") if extra in ("test", "lint", "docs", "dev")]
kept = {"/".join(name.split("/")[1:]) for name in tarfile.open(sdist).getnames()}
missing = {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "tests/conftest.py", "constraints.txt"} - kept
assert not missing, f"the sdist lacks {missing}"
print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB, {len(names)} files; {sdist.name}: {sdist.stat().st_size / 1e6:.2f} MB")
PYTHON
started=$(date +%s)
sh tests/wheel.sh "$1" "$PWD"
echo "installed and tried in $(($(date +%s) - started)) s"
echo "ready to publish: dist/"
