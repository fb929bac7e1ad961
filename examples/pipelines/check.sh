#!/bin/sh
# Before servers start: 0 if the store has every kernel of the list. No GPU, no compiler.
set -eu
: "${TESSERA_REMOTE:?the store}"
exec tessera check "${SHAPES:-shapes.json}" --in-remote --cache-dir "${CACHE:-.tessera}"
