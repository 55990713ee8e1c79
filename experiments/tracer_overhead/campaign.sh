#!/bin/bash
# The measurement on a machine with a GPU and torch, all modes interleaved; results go to $OUT.
#   [LIBDW=directory of libdw.so.1] campaign.sh DIRECTORY   (of libgapscope_trace.so)
files=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
OUT=${OUT:-$work/out}
mkdir -p "$OUT"
tracer=$files/libgapscope_trace.so
export PYTHONWARNINGS=ignore
nsys=$(find / -path '*host/target-linux-x64/nsys' -type f 2>/dev/null | head -1)

# traced COMMAND...: what `gapscope trace` sets, without needing it there.
traced() {
    rm -rf "$work/trace"
    env CUDA_INJECTION64_PATH="$tracer" NVTX_INJECTION64_PATH="$tracer" GAPSCOPE_TRACE_DIR="$work/trace" "$@"
}
mode() { # mode NAME COMMAND...
    name=$1
    shift
    case $name in
    null) traced GAPSCOPE_TRACE_SINK=null "$@" ;;
    arrow) traced "$@" ;;
    lz4) traced GAPSCOPE_TRACE_LZ4=1 "$@" ;;
    nsys)
        LD_LIBRARY_PATH=$LIBDW "$nsys" profile -t cuda --sample=none --cpuctxsw=none -f true \
            -o "$work/nsys" "$@" | grep -E '^[0-9{]'
        ;;
    *) "$@" ;;
    esac
}
nvcc -O2 -arch=sm_90 -cudart static -o "$work/launches" "$here/launches.cu"
for round in 1 2 3 4 5 6; do
    for name in none null arrow lz4 nsys; do
        echo "launch $name $(mode $name timeout 40 "$work/launches")" | tee -a "$OUT/results.txt"
    done
done
for round in 1 2 3 4 5; do
    for name in none null arrow kineto; do
        [ "$name$round" = kineto5 ] && continue
        mode $name timeout 60 python3 "$here/steps.py" $name 2>&1 | tail -1 | tee -a "$OUT/results.txt"
        if [ "$name" = arrow ]; then
            cp "$work"/trace/*/meta.json "$OUT/arrow-meta.json"
            stat -c '%n %s' "$work"/trace/*/*.arrows >"$OUT/arrow-sizes.txt"
        fi
    done
done
