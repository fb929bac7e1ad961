#!/bin/sh
# One machine's part of a list of kernels, compiled into the store that TESSERA_REMOTE names; what is there already is fetched.
# Which part: SHARD, as I/N, or the variables of a Slurm array, of GitLab's `parallel`, of an indexed Job (which needs SHARDS, how many).
# Exit codes: those of `tessera warm` (docs/cli.md): 0 all of it is there, 3 a kernel does not compile, 5 the store did not take it.
set -eu
: "${TESSERA_REMOTE:?the store, like https://cache.example/tessera, s3://bucket/tessera or rediss://cache.example/0/tessera}"
exec tessera warm "${SHAPES:-shapes.json}" --shard "${SHARD:-auto}" ${SHARDS:+--shards "$SHARDS"} --remote-write --cache-dir "${CACHE:-.tessera}"
