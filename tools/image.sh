#!/usr/bin/env bash
# Builds the image by deploy/Dockerfile and starts it: tools/image.sh FOLDER
#
# Works without an image registry: BASE is Debian, made by debootstrap and kept in the cache; the rest is in FOLDER.
# Needs root, and Debian's buildah and debootstrap.
set -euo pipefail
work=$1
suite=bookworm
packages=bash,ca-certificates,passwd,python3,python3-venv
kept=${XDG_CACHE_HOME:-$HOME/.cache}/blamespan/image-base-$suite.tar
if [ "$(id -u)" -ne 0 ] || ! unshare --mount true 2>/dev/null; then
    echo "this machine allows no mounts: the image is not built here"
    exit 0
fi
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
buildah() { command buildah --root "$work/storage" --runroot "$work/run" "$@"; }

if [ ! -f "$kept" ]; then
    debootstrap --variant=minbase --include=$packages $suite "$work/base" >"$work/debootstrap.log" 2>&1 ||
        { tail -20 "$work/debootstrap.log"; exit 1; }
    mkdir -p "$(dirname "$kept")"
    tar -C "$work/base" -cf "$work/base.tar" .
    mv "$work/base.tar" "$kept"
fi
# pip in the build trusts and asks what pip asks here.
mkdir -p "$work/own/etc/ssl/certs"
cp /etc/ssl/certs/ca-certificates.crt "$work/own/etc/ssl/certs/"
index=${PIP_INDEX_URL:-$(python3 -m pip config get global.index-url 2>/dev/null || true)}
{
    printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n'
    [ -z "$index" ] || printf 'index-url = %s\n' "$index"
} >"$work/own/etc/pip.conf"
ln -f "$kept" "$work/base.tar" 2>/dev/null || cp "$kept" "$work/base.tar"
printf 'FROM scratch\nADD base.tar /\nCOPY own /\n' >"$work/Basefile"
buildah bud --quiet -f "$work/Basefile" -t localhost/base "$work"
buildah bud --quiet --format docker --network host --build-arg BASE=localhost/base -f deploy/Dockerfile -t localhost/blamespan .

probe=$(buildah inspect --type image --format '{{.Docker.Config.Healthcheck.Test}}' localhost/blamespan)
[ "$probe" = '[CMD blamespan-healthcheck]' ] || { echo "the image's health check is $probe"; exit 1; }
container=$(buildah from localhost/blamespan)
# Only now, for making the container takes long enough for another program to take the ports.
read -r grpc http page < <(python3 -c '
import socket
free = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*(one.getsockname()[1] for one in free))')
inside() {
    buildah run --network host --env BLAMESPAN_TOKEN=0123456789abcdef --env BLAMESPAN_WEB_LISTEN=127.0.0.1:"$page" \
        --env BLAMESPAN_OTLP_GRPC_LISTEN=127.0.0.1:"$grpc" --env BLAMESPAN_OTLP_HTTP_LISTEN=127.0.0.1:"$http" \
        "$container" -- "$@"
}
# In a process group of its own, so that it can be ended with all that buildah starts for it.
set -m
inside blamespan serve --format json >"$work/serve.log" 2>&1 &
service=$!
set +m
trap 'kill -TERM -- -$service 2>/dev/null || true; wait $service || true' EXIT
for _ in $(seq 60); do
    inside blamespan-healthcheck >"$work/health.log" 2>&1 && break
    kill -0 $service 2>/dev/null || break
    sleep 1
done
if [ "$(cat "$work/health.log")" != ready ]; then
    cat "$work/health.log" "$work/serve.log"
    exit 1
fi
[ "$(inside id -u)" = 10001 ] || { echo "the image runs as user $(inside id -u)"; exit 1; }
echo "the image is built, its service is ready: $(inside blamespan --version)"
