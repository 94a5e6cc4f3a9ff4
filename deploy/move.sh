#!/bin/sh
# Writes where our images are, by digest, into one folder that Kustomize reads, and nothing else:
#
#   deploy/move.sh deploy/overlays/production registry.example.com/ml-assets/training@sha256:... ...
#
# The last part of an image's name says which of ours it is. All of them are written, or none.
set -eu

refuse() {
  echo "move.sh: $1" >&2
  exit 64
}

[ $# -ge 2 ] || refuse "expected a folder of deploy/ and at least one image by digest"
file=$1/kustomization.yaml
shift
[ -f "$file" ] || refuse "$file is not there"

written=$(cat "$file")
for image; do
  printf '%s' "$image" | tr '\n' ' ' \
    | grep -Eqx '[a-z0-9][a-z0-9._:/-]*/[a-z0-9._-]+@sha256:[0-9a-f]{64}' \
    || refuse "$image is no image by digest, such as registry.example.com/ml-assets/training@sha256:..."
  name=${image%@*}
  ours=ml-assets/${name##*/}
  printf '%s\n' "$written" | grep -q -- "- name: $ours\$" || refuse "$file has no image $ours"
  written=$(printf '%s\n' "$written" | sed "\\|- name: $ours\$|,\\|digest:|{
    s|newName: .*|newName: $name|
    s|digest: .*|digest: ${image#*@}|
  }")
done
printf '%s\n' "$written" > "$file.new"
mv "$file.new" "$file"
