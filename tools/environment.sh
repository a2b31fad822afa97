#!/bin/sh
# Makes a virtual environment of pinned packages: tools/environment.sh PYTHON VENV REQUIREMENTS…
#
# uv does the work, in seconds and from one cache for all environments. Where uv cannot be installed or fails
# (no wheel for this platform, an index that only pip is configured for), pip does the same in minutes.
set -eu
python=$1 venv=$2
shift 2
for file in "$@"; do
    set -- "$@" -r "$file"
    shift
done

"$python" -m venv "$venv"
pip() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes "$@"; }

# uv does not read pip's settings, so it is told pip's index.
index=${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-$("$venv/bin/python" -m pip config get global.index-url 2>/dev/null || true)}}
[ -z "$index" ] || export UV_DEFAULT_INDEX="$index"

if ! { pip --only-binary :all: -r "$(dirname "$0")/../requirements/installer.txt" &&
    "$venv/bin/uv" pip install --python "$venv/bin/python" --require-hashes --compile-bytecode "$@"; }; then
    echo "uv could not install the packages; pip does it instead, which takes a few minutes …" >&2
    pip --progress-bar on "$@"
fi
