#!/bin/bash
# The measurement on a machine with a GPU, all modes interleaved in one run; results go to $OUT.
#   campaign.sh DIRECTORY   (of libgapscope_trace.so, traced_app, libcupti_fake.so, workload.py)
files=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
OUT=${OUT:-/tmp/out}
mkdir -p "$OUT" /tmp/tr /tmp/kineto /tmp/mps /tmp/mpslog
tracer=$files/libgapscope_trace.so
export PYTHONWARNINGS=ignore

# traced DIRECTORY COMMAND...: what `gapscope trace` sets, without needing it there.
traced() {
    dir=$1
    shift
    env CUDA_INJECTION64_PATH="$tracer" NVTX_INJECTION64_PATH="$tracer" GAPSCOPE_TRACE_DIR="$dir" "$@"
}

# No losses at 300,000 launches a second for 30 s, on the fake libcupti: needs no GPU.
traced /tmp/tr/rate NVTX_INJECTION64_PATH= "$files/traced_app" "$files/libcupti_fake.so" "$tracer" \
    rate 300000 30 >"$OUT/rate.txt" 2>&1 &
rate=$!

export NCCL_SOCKET_IFNAME=lo OMP_NUM_THREADS=4
export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps CUDA_MPS_LOG_DIRECTORY=/tmp/mpslog
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
ranks traced1 traced /tmp/tr/traced1 GAPSCOPE_TRACE_WINDOW=profiler -- --nvtx
ranks kineto -- --profile /tmp/kineto/k
ranks traced2 traced /tmp/tr/traced2 GAPSCOPE_TRACE_WINDOW=profiler -- --nvtx
ranks whole traced /tmp/tr/whole -- --nvtx
wait $rate
cat "$OUT/rate.txt"
echo quit | nvidia-cuda-mps-control
unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
tail -22 /tmp/tr/rate/*/meta.json >>"$OUT/rate.txt"
rm -f /tmp/tr/rate/*/*.arrows
tar -C /tmp -czf "$OUT/traces.tgz" tr
tar -C /tmp -czf "$OUT/kineto.tgz" kineto

mode() { # mode NAME COMMAND...
    name=$1
    shift
    rm -rf /tmp/tr/mode
    case $name in
    null) traced /tmp/tr/mode GAPSCOPE_TRACE_SINK=null "$@" ;;
    arrow) traced /tmp/tr/mode "$@" ;;
    lz4) traced /tmp/tr/mode GAPSCOPE_TRACE_LZ4=1 "$@" ;;
    *) "$@" ;;
    esac
}
if nvcc -O2 -arch=sm_90 -cudart static -o /tmp/launches "$here/launches.cu"; then
    for round in 1 2 3 4 5; do
        for name in none null arrow lz4; do
            echo "launch $name $(mode $name timeout 30 /tmp/launches)" | tee -a "$OUT/log.txt"
        done
    done
fi
for round in 1 2 3 4; do
    for name in none null arrow kineto; do
        [ "$name$round" = kineto4 ] && continue
        mode $name timeout 60 python3 "$here/steps.py" $name 2>&1 | tail -1 | tee -a "$OUT/log.txt"
        if [ "$name" = arrow ]; then
            cp /tmp/tr/mode/*/meta.json "$OUT/arrow-meta.json"
            stat -c '%n %s' /tmp/tr/mode/*/*.arrows >"$OUT/arrow-sizes.txt"
        fi
    done
done

# Killed with SIGKILL in full flight.
traced /tmp/tr/killed python3 -c '
import torch
x = torch.zeros(1, device="cuda")
while True: x.add_(1)' &
sleep 14
kill -9 $(pgrep -f 'while True: x.add_' | tail -1)
wait
stat -c '%n %s' /tmp/tr/killed/*/* | tee -a "$OUT/log.txt"
