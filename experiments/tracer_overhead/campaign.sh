#!/bin/bash
# The measurement on a machine with a GPU, all modes interleaved in one run; results go to $OUT.
#   campaign.sh DIRECTORY   (of libgapscope_trace.so, traced_app, libcupti_fake.so, workload.py)
files=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
OUT=${OUT:-$work/out}
mkdir -p "$OUT" "$work"/{tr,kineto,mps,mpslog}
tracer=$files/libgapscope_trace.so
export PYTHONWARNINGS=ignore

# traced DIRECTORY COMMAND...: what `gapscope trace` sets, without needing it there.
traced() {
    dir=$1
    shift
    env CUDA_INJECTION64_PATH="$tracer" NVTX_INJECTION64_PATH="$tracer" GAPSCOPE_TRACE_DIR="$dir" "$@"
}

# No losses at 300,000 launches a second for 30 s, on the fake libcupti: needs no GPU.
traced "$work"/tr/rate NVTX_INJECTION64_PATH= "$files/traced_app" "$files/libcupti_fake.so" "$tracer" \
    rate 300000 30 >"$OUT/rate.txt" 2>&1 &
rate=$!

export NCCL_SOCKET_IFNAME=lo OMP_NUM_THREADS=4
export CUDA_MPS_PIPE_DIRECTORY="$work/mps" CUDA_MPS_LOG_DIRECTORY="$work/mpslog"
nvidia-cuda-mps-control -d
sleep 1
ranks() { # ranks NAME WRAPPER... -- ARGUMENT...: two ranks side by side on one GPU
    name=$1
    shift
    wrapper=()
    while [ "$1" != -- ]; do wrapper+=("$1"); shift; done
    shift
    CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=48 CUDA_DEVICE_MAX_CONNECTIONS=8 "${wrapper[@]}" timeout 90 \
        torchrun --nproc_per_node=2 "$files/workload.py" --batch 48 --layers 6 --dim 1024 --steps 4 "$@" \
        2>&1 | grep -E '^\{|rror' | tail -4 | sed "s/^/$name /" | tee -a "$OUT/log.txt"
}
ranks traced1 traced "$work"/tr/traced1 GAPSCOPE_TRACE_WINDOW=profiler -- --nvtx
ranks kineto -- --profile "$work"/kineto/k
ranks traced2 traced "$work"/tr/traced2 GAPSCOPE_TRACE_WINDOW=profiler -- --nvtx
ranks whole traced "$work"/tr/whole -- --nvtx
wait $rate
cat "$OUT/rate.txt"
echo quit | nvidia-cuda-mps-control
unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
tail -22 "$work"/tr/rate/*/meta.json >>"$OUT/rate.txt"
rm -f "$work"/tr/rate/*/*.arrows
tar -C "$work" -czf "$OUT/traces.tgz" tr
tar -C "$work" -czf "$OUT/kineto.tgz" kineto

mode() { # mode NAME COMMAND...
    name=$1
    shift
    rm -rf "$work"/tr/mode
    case $name in
    null) traced "$work"/tr/mode GAPSCOPE_TRACE_SINK=null "$@" ;;
    arrow) traced "$work"/tr/mode "$@" ;;
    lz4) traced "$work"/tr/mode GAPSCOPE_TRACE_LZ4=1 "$@" ;;
    *) "$@" ;;
    esac
}
if nvcc -O2 -arch=sm_90 -cudart static -o "$work"/launches "$here/launches.cu"; then
    for round in 1 2 3 4 5; do
        for name in none null arrow lz4; do
            echo "launch $name $(mode $name timeout 30 "$work"/launches)" | tee -a "$OUT/log.txt"
        done
        for kib in 64 1024 4096; do
            echo "launch null-buffer$kib $(GAPSCOPE_TRACE_BUFFER_KIB=$kib mode null "$work"/launches)"
        done | tee -a "$OUT/log.txt"
        for ms in 100 10000; do
            echo "launch null-flush$ms $(GAPSCOPE_TRACE_FLUSH_MS=$ms mode null "$work"/launches)"
        done | tee -a "$OUT/log.txt"
    done
fi
for round in 1 2 3 4; do
    for name in none null arrow kineto; do
        [ "$name$round" = kineto4 ] && continue
        mode $name timeout 60 python3 "$here/steps.py" $name 2>&1 | tail -1 | tee -a "$OUT/log.txt"
        if [ "$name" = arrow ]; then
            cp "$work"/tr/mode/*/meta.json "$OUT/arrow-meta.json"
            stat -c '%n %s' "$work"/tr/mode/*/*.arrows >"$OUT/arrow-sizes.txt"
        fi
    done
done

# Killed with SIGKILL in full flight.
traced "$work"/tr/killed python3 -c '
import torch
x = torch.zeros(1, device="cuda")
while True: x.add_(1)' &
sleep 14
kill -9 "$(pgrep -P $! python3 || echo $!)"
wait
stat -c '%n %s' "$work"/tr/killed/*/* | tee -a "$OUT/log.txt"
