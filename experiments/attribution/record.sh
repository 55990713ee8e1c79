#!/bin/bash
# Annotated FSDP2 captures, several ranks on one GPU under MPS: record.sh OUT_DIR [DEADLINE_S]
# OUT_DIR gets NAME_rankN.json.gz and NAME.log. Needs torchrun and a GPU that nobody else uses.
set -u
out=$(realpath -m "${1:?usage: record.sh OUT_DIR [DEADLINE_S]}")
deadline_s=${2:-345}
workload=$(realpath "$(dirname "$0")")/workload.py
mkdir -p "$out"
mps=$(mktemp -d)
mkdir "$mps/pipe" "$mps/log"
export CUDA_MPS_PIPE_DIRECTORY=$mps/pipe CUDA_MPS_LOG_DIRECTORY=$mps/log
# With the default of two connections under MPS streams share hardware queues.
export CUDA_DEVICE_MAX_CONNECTIONS=8
export NCCL_SOCKET_IFNAME=lo NCCL_DEBUG=WARN OMP_NUM_THREADS=2
export PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore

stop_mps() {
  echo quit | nvidia-cuda-mps-control
  rm -rf "$mps"
}
trap stop_mps EXIT
nvidia-cuda-mps-control -d
sleep 1

capture() { # NAME RANKS LIMIT_S OPTIONS...
  local name=$1 ranks=$2 limit_s=$3 begin=$SECONDS status
  shift 3
  local left_s=$((deadline_s - SECONDS))
  if [ "$left_s" -lt 20 ]; then
    echo "$name skipped: no time left"
    return 1
  fi
  [ "$limit_s" -gt "$left_s" ] && limit_s=$left_s
  # Each rank gets its own part of the GPU: otherwise kernels of one would delay the other's.
  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=$((96 / ranks)) timeout -k 5 "$limit_s" \
    torchrun --nproc_per_node="$ranks" "$workload" --profile "$out/$name" "$@" \
    >"$out/$name.log" 2>&1
  status=$?
  grep -h '^{\|^UNITS' "$out/$name.log" | sed "s/^/$name /"
  echo "$name rc=$status $((SECONDS - begin))s: $*"
  [ "$status" -eq 0 ] || grep -v '^\s*$' "$out/$name.log" | tail -25
  return "$status"
}

small="--layers 4 --dim 512 --batch 8 --seq 512 --steps 2 --warm 4"
annotated="$small --annotate"
large="--layers 6 --dim 1024 --batch 48 --seq 1024 --steps 6 --warm 4 --annotate"
# The lists of options are split into words on purpose.
# shellcheck disable=SC2086
{
  capture base 2 60 $annotated || { echo "the first capture failed: stop"; exit 1; }
  capture ac 2 60 $annotated --ac
  capture reshard_false 2 60 $annotated --reshard false
  capture rootless 2 60 $annotated --rootless single
  capture accum2 2 60 $annotated --accum 2
  capture compile 2 80 $annotated --compile
  capture prefetch2 2 60 $annotated --prefetch 2
  capture reshard_int 4 80 $annotated --reshard 2
  capture alt_late 2 80 $large --inject alternate --delay-us 12000
  capture alt_skew 2 80 $large --inject alternate_skew --delay-us 40000
  capture compile_ac 2 80 $annotated --compile --ac
  capture fp32reduce 2 60 $annotated --fp32reduce
  capture rootlist 2 60 $annotated --rootless list
  capture plain 2 60 $small
  capture accum2_fp32 2 60 $annotated --accum 2 --fp32reduce
  capture rootless_accum2_ac 2 60 $annotated --rootless list --accum 2 --ac
}
