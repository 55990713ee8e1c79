#!/bin/bash
# Two ranks, one a GPU: every fault traced and untraced in turn; clean and skew also with Kineto and
# Nsight Systems; GPU metrics once. Eight minutes. Run at the top of a checkout; results go to $OUT.
#   GAPSCOPE_TRACER=libgapscope_trace.so [LIBDW=directory of libdw.so.1] [LATEST=s] campaign.sh [CASE...]
# No case begins later than LATEST seconds.
# With one GPU its ranks share it through MPS, each its part of it (smaller; also with four ranks).
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
OUT=${OUT:-$work/out}
mkdir -p "$OUT" "$work/trace" "$work/kineto" "$work/nsys"
export PYTHONPATH=$PWD OMP_NUM_THREADS=4 XZ_DEFAULTS=-T0 PYTHONWARNINGS=ignore NCCL_NVLS_ENABLE=0
export CUDA_DEVICE_MAX_CONNECTIONS=8 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
cases=${*:-clean late skew queue small compile clean2 kineto nsys metrics}

size=()
if [ "$(nvidia-smi -L | wc -l)" = 1 ]; then
    size=(--dim 1024 --batch 48 --sequence 1024 --layers 6)
    export NCCL_SOCKET_IFNAME=lo
    export CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps
    mkdir -p "$work/mps"
    nvidia-cuda-mps-control -d
    sleep 1
    trap 'echo quit | nvidia-cuda-mps-control' EXIT
fi

said() { grep -E '^\{|rror|^traced' | sed "s/^{/{\"tool\": \"$1\", /" | tee -a "$OUT/steps.jsonl"; }
ranks=2
launch() { timeout 75 torchrun --nproc_per_node=$ranks "$here/train.py" "${size[@]}" "$@"; }
untraced() { launch "$@" 2>&1 | said none; }
traced() { # traced NAME ARGUMENT...
    name=$1
    shift
    timeout 90 python3 -m gapscope trace -q --fsdp2 --steps 14:26 -o "$work/trace/$name" -- \
        torchrun --nproc_per_node=$ranks "$here/train.py" "${size[@]}" --name "$name" "$@" 2>&1 | said gapscope
}
both() {
    traced "$@"
    untraced --name "$@"
}
nsys=$(find / -path '*host/target-linux-x64/nsys' -type f 2>/dev/null | head -1)
nsight() { # nsight NAME "OPTIONS" ARGUMENT...
    name=$1 options=$2
    shift 2
    cat >"$work/rank.sh" <<END
#!/bin/bash
export LD_LIBRARY_PATH=$LIBDW:\$LD_LIBRARY_PATH
[ "\$RANK" = 0 ] || options=
exec "$nsys" profile -t cuda,nvtx --sample=none --cpuctxsw=none --cuda-event-trace=false \
    --capture-range=cudaProfilerApi --capture-range-end=stop -f true $options \
    -o "$work/nsys/${name}_rank\$RANK" python3 "$here/train.py" "\$@"
END
    chmod +x "$work/rank.sh"
    timeout 120 torchrun --no-python --nproc_per_node=2 "$work/rank.sh" "${size[@]}" --name "$name" \
        --profiler-api --annotate "$@" 2>&1 | said nsys
}
export_nsight() {
    for report in "$work"/nsys/*.nsys-rep; do
        LD_LIBRARY_PATH=$LIBDW:$LD_LIBRARY_PATH timeout 100 "$nsys" export --type sqlite -f true \
            -o "${report%.nsys-rep}.sqlite" "$report" >/dev/null 2>&1
    done
    gzip -q "$work"/nsys/*.sqlite
}

nvidia-smi topo -m >"$OUT/machine.txt"
python3 -c 'import torch; print(torch.__version__, torch.cuda.nccl.version())' >>"$OUT/machine.txt"
for one in $cases; do
    echo "== $one after $SECONDS s"
    [ $SECONDS -lt "${LATEST:-420}" ] || continue
    case $one in four*) ranks=4 ;; *) ranks=2 ;; esac
    [ -z "$CUDA_MPS_PIPE_DIRECTORY" ] || export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=$((96 / ranks))
    case $one in
    clean*) both $one ;;
    late*) both $one --late-ms 12 ;;
    skew) both skew --skew-ms 20 ;;
    queue) both queue --one-stream ;;
    small) both small --batch 1 --sequence 256 ;;
    compile) both compile --compile ;;
    four) both four ;;
    four_compile) both four_compile --compile ;;
    kineto)
        launch --name clean --kineto "$work/kineto/clean" 2>&1 | said kineto
        launch --name skew --skew-ms 20 --kineto "$work/kineto/skew" 2>&1 | said kineto
        ;;
    nsys)
        nsight clean ""
        nsight skew "" --skew-ms 20
        ;;
    metrics) nsight metrics "--gpu-metrics-devices=all --gpu-metrics-frequency=10000" ;;
    esac
done
echo "== end after $SECONDS s"
export_nsight
for kind in trace kineto nsys; do
    tar -C "$work" -cJf "$OUT/$kind.txz" $kind
done
ls -l "$OUT" "$work"/*/
