# Run the fast tests with the oldest versions that pyproject.toml allows, in a new environment elsewhere.
# Usage: sh tests/oldest.sh PYTHON CHECKOUT
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$1" "$2/tests/oldest.py" > "$place/oldest.txt"
"$1" -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --requirement "$place/oldest.txt"
"$place/venv/bin/python" -m pip install --quiet --no-deps --editable "$2"
cd "$2"
# What old libraries say of new ones is no fault of ours; what needs the other tools of `make docs` is left to it.
"$place/venv/bin/python" -m pytest -n 2 -m "not long and not slow and not gpu" -p no:cacheprovider \
    -W ignore::DeprecationWarning --ignore tests/test_trackers.py --ignore tests/test_docs.py
