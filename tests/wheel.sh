# Install the built wheel into a new environment elsewhere and use it: make bags, train, predict, evaluate, report.
# Usage: sh tests/wheel.sh PYTHON CHECKOUT
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$1" -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --no-compile --constraint "$2/constraints.txt" "$2"/dist/miue-*.whl
cd "$place"
venv/bin/python -c "import miue, pathlib; root = pathlib.Path(miue.__file__).parent; assert 'venv' in str(root) and (root / 'py.typed').exists()"
venv/bin/python -c "import importlib.util; assert importlib.util.find_spec('papers') is None, 'papers are not for the wheel'"
site=$(venv/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")
echo "installed: $(du -sm "$site" | cut -f1) MB, of which torch $(du -sm "$site/torch" | cut -f1) MB"
venv/bin/miue data make gaussian-bags --out store
venv/bin/miue train store --out run --set max_epochs=1 --quiet
venv/bin/miue predict run store --out predictions --quiet
venv/bin/miue evaluate predictions
venv/bin/miue report predictions --out report.html --quiet
echo "the wheel works outside the checkout"
