#!/usr/bin/env bash
# Measures the kernels of a list on the GPU here: measure.sh TESSERA LIST OUT. Each line of LIST gives a line of OUT:
# {"line": what, "clock_mhz": what nvidia-smi saw during it, "runs": what `tessera run --json` printed}.
set -u
tessera=$1; list=$2; out=$3; repeat=${REPEAT:-40}; limit=${LIMIT:-40}
: > "$out"
while IFS= read -r line; do
  [[ -z $line || $line == \#* ]] && continue
  nvidia-smi --query-gpu=clocks.sm,power.draw,temperature.gpu --format=csv,noheader,nounits -lms 20 > clocks.tmp 2>/dev/null &
  sampler=$!
  begin=$SECONDS
  # shellcheck disable=SC2086
  timeout "$limit" "$tessera" run $line --arch sm_90a --device gpu --json --quiet --jobs 0 --repeat "$repeat" > run.tmp 2> run.err
  code=$?
  kill $sampler 2>/dev/null; wait $sampler 2>/dev/null
  python3 - "$line" "$code" >> "$out" <<'P'
import json, sys
try:
    clocks = [tuple(float(x) for x in row.split(",")) for row in open("clocks.tmp") if row.count(",") == 2]
except ValueError:
    clocks = []
text = open("run.tmp").read()
try:
    runs = json.loads(text)
except ValueError:
    runs = text[-2000:]
busy = [c for c in clocks if c[1] > 200]
mhz = sorted(c[0] for c in busy) or [0]
print(json.dumps({"line": sys.argv[1], "code": int(sys.argv[2]), "clock_mhz": mhz[len(mhz) // 2], "clock_min": mhz[0],
                  "clock_max": mhz[-1], "samples": len(busy), "watts": max([c[1] for c in clocks], default=0), "runs": runs}))
P
  echo "$((SECONDS - begin)) s, exit $code: $line"
done < "$list"
rm -f clocks.tmp run.tmp
