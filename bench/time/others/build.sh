#!/usr/bin/env bash
# Builds the programs of programs.txt: build.sh SOURCES OUT [NAME...]. SOURCES has checkouts named as programs.txt names them.
set -u
here=$(cd "$(dirname "$0")" && pwd); sources=$(cd "$1" && pwd); mkdir -p "$2"; out=$(cd "$2" && pwd); shift 2
while IFS='|' read -r name file flags _; do
  name=${name// /}; file=${file// /}
  [[ -z $name || $name == \#* ]] && continue
  [[ $# -gt 0 && " $* " != *" $name "* ]] && continue
  [[ -s $out/$name ]] && continue
  [[ $file == *.py ]] && { cp "$here/$file" "$out/$name"; echo "copied $name"; continue; }
  eval "words=(${flags//DIR/$sources})"
  if [[ ${words[0]:-} == cut:* ]]; then  # what is before a file's functions for PyTorch
    sed -e '/torch::Tensor/,$d' -e '/#include <torch/d' "${words[0]#cut:}" > "$out/$name.cu"
    words=("-DSOURCE=\"$out/$name.cu\"" "${words[@]:1}")
  fi
  if nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=[sm_90a,compute_90a] -w -I "$here" \
      "${words[@]}" "$here/$file" -o "$out/$name" -lcuda > "$out/$name.log" 2>&1; then
    rm -f "$out/$name.log" "$out/$name.cu"; echo "built $name"
  else
    echo "failed $name: $out/$name.log"
  fi
done < "$here/programs.txt"
