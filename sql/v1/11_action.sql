-- view:       v1.action
-- purpose:    From a proven cost to the next action: what to try, and the evidence without which it is not said.
-- grain:      cost, action
-- depends-on: -
-- materialise: no
-- since:      1
-- columns:
--   cost        VARCHAR  -  Cost that must be proven first (v1.cost).
--   action      VARCHAR  -  Stable name of the action.
--   place       INTEGER  -  Order in which they are said.
--   needs       VARCHAR  -  Words, all of which the evidence of the capture must have earned; empty: the cost alone.
--   prefers     VARCHAR  -  Shape of the pieces (short or long) for which it comes first.
--   cause       VARCHAR  -  Only where this is the largest cause of the class, and then first; empty: any.
--   modelled_by VARCHAR  -  How the replayed change begins that models it; empty: none does.
--   advice      VARCHAR  -  What to try.
CREATE OR REPLACE VIEW v1.action AS
WITH listed (cost, action, needs, prefers, cause, modelled_by, advice) AS (
    VALUES
    (
        'launch', 'cuda_graph', 'cuda no-graph', 'short', '', '',
        'Replay the step as a CUDA graph, or `torch.compile` with `mode="reduce-overhead"`.'
    ),
    (
        'launch', 'hip_graph', 'hip', 'short', '', '',
        'Replay the step as a HIP graph, or use `torch.compile`.'
    ),
    (
        'launch', 'fewer_launches', '', 'short', '', '',
        'Launch fewer, larger kernels: fused or foreach optimizers, fused norms.'
    ),
    (
        'launch', 'micro_batch', 'short-kernels', 'short', '', '',
        'A larger micro-batch, where memory allows: as many launches then carry more work.'
    ),
    (
        'launch', 'host_work', '', 'long', '', '',
        'Look for what delays the launching thread: data loading, Python work, garbage collection or a '
        || 'synchronization. The evidence says whether it was inside a call.'
    ),
    (
        'launch', 'no_sync', '', 'long', '', '',
        'Keep that thread free: no `.item()`, `.cpu()`, logging or data loading on it.'
    ),
    (
        'launch', 'garbage_collection', 'outside-calls', 'long', '', '',
        'The thread was mostly outside calls: rule out the garbage collector (`gc.disable()`, and '
        || '`gc.collect()` between steps; Megatron: `--manual-gc`).'
    ),
    (
        'launch', 'affinity', 'outside-calls', 'long', '', '',
        'Give the launching thread a core of its own, near its GPU (`numactl`, `taskset`), away from data '
        || 'loading workers.'
    ),
    (
        'communication', 'fsdp_prefetch', 'fsdp comm', '', '', '',
        'Start collectives earlier: for FSDP2, `set_modules_to_forward_prefetch` and '
        || '`set_modules_to_backward_prefetch`.'
    ),
    (
        'communication', 'fsdp_send_less', 'fsdp comm', '', '', '',
        'Send less: `reshard_after_forward=False` where memory allows, HSDP inside a node, larger '
        || 'micro-batches between gradient reductions.'
    ),
    (
        'communication', 'start_earlier', 'no-fsdp', '', '', '',
        'Start collectives earlier, or send fewer bytes.'
    ),
    (
        'communication', 'tensor_parallel', 'axis-tp', '', '', '',
        'Overlap tensor-parallel communication with the GEMMs beside it: sequence parallelism with Megatron''s'
        || ' `--tp-comm-overlap`, or async tensor parallelism of torch.'
    ),
    (
        'communication', 'data_parallel', 'axis-dp no-fsdp', '', '', '',
        'Overlap gradient reduction and parameter gathering with compute (DDP: buckets; Megatron: '
        || '`--overlap-grad-reduce`, `--overlap-param-gather`).'
    ),
    (
        'communication', 'pipeline_parallel', 'axis-pp', '', '', '',
        'Shorten the pipeline''s bubble: more micro-batches, interleaved stages '
        || '(`--num-layers-per-virtual-pipeline-stage`), sends beside compute.'
    ),
    (
        'communication', 'expert_overlap', 'axis-ep', '', '', '',
        'Overlap dispatch and combine with compute of another micro-batch or of the shared expert (Megatron: '
        || '`--overlap-moe-expert-parallel-comm`, `--moe-shared-expert-overlap`).'
    ),
    (
        'communication', 'expert_dispatcher', 'axis-ep', '', '', '',
        'Compare dispatchers (Megatron: `--moe-token-dispatcher-type alltoall` against `flex` with DeepEP or '
        || 'HybridEP), expert groups inside a node first.'
    ),
    (
        'communication', 'context_parallel', 'axis-cp', '', '', '',
        'Compare layouts of context parallelism (Megatron: `--cp-comm-type p2p`, `a2a`, `a2a+p2p`): ring '
        || 'steps hide behind attention, all-to-alls send less.'
    ),
    (
        'communication', 'rank_jitter', 'late-rank', '', '', '',
        'Most of this waiting is for a rank that came last: work on that rank first (section 4), faster '
        || 'collectives will not help.'
    ),
    (
        'communication', 'alone', '', '', '', '',
        'Check that the collective is fast when alone; a long one may be waiting for a late rank.'
    ),
    (
        'queue', 'record_events', 'nsys cuda', '', '', '',
        'Capture again with event records (`nsys profile --cuda-event-trace=true`), so that waits lead to '
        || 'their producers.'
    ),
    (
        'queue', 'connections', 'cuda', '', '', '',
        'Raise `CUDA_DEVICE_MAX_CONNECTIONS` (32 at most) if many streams are in use, and compare.'
    ),
    (
        'queue', 'look_behind', '', '', '', '',
        'Look at the timeline of the HTML report: which stream does the op sit behind?'
    ),
    (
        'unresolved', 'record_events', 'nsys cuda', '', '', '',
        'Capture again with event records (`nsys profile --cuda-event-trace=true`), so that waits lead to '
        || 'their producers.'
    ),
    (
        'unresolved', 'exposed_likely', 'comm', '', '', '',
        'If exposed communication is of this size it is the likely reason: start it earlier or send less.'
    ),
    (
        'unresolved', 'connections', 'cuda', '', '', '',
        'Raise `CUDA_DEVICE_MAX_CONNECTIONS` (32 at most) if many streams are in use, and compare.'
    ),
    (
        'unresolved', 'look_before', '', '', '', '',
        'Look at the timeline of the HTML report: what ran just before the op started?'
    ),
    (
        'copy', 'prefetch_pinned', 'pageable', '', '', '',
        'Overlap them: copy the next batch on a stream of its own from pinned memory with '
        || '`non_blocking=True`, one or two batches ahead.'
    ),
    (
        'copy', 'prefetch', 'not-pageable', '', '', '',
        'Overlap them: copy the next batch on a stream of its own with `non_blocking=True`, one or two '
        || 'batches ahead.'
    ),
    (
        'copy', 'copy_less', '', '', '', '',
        'Copy less: keep on the device what is used again, send smaller types, convert there.'
    ),
    (
        'copy', 'pin', 'pageable', '', '', '',
        'Pageable host memory copies slowly and blocks the host: `pin_memory=True`.'
    ),
    (
        'copy', 'offload', 'both-ways', '', '', '',
        'Offloaded state or activations: fetch them one layer ahead, and offload only as much as copies '
        || 'beside compute can carry.'
    ),
    (
        'device_copy', 'find_copies', '', '', '', '',
        'Find what copies: `.contiguous()`, `.clone()`, `torch.cat` and in-place updates of views.'
    ),
    (
        'device_copy', 'fuse_copies', '', '', '', '',
        '`torch.compile` fuses many of them away; writing into preallocated outputs does too.'
    ),
    (
        'packing', 'larger_units', '', '', '', '',
        'Fewer, larger units: each unit pays for its own copies in and out.'
    ),
    (
        'packing', 'prefetch_packing', 'fsdp', '', '', '',
        'Overlap: prefetch so that the copy-in runs while other compute does.'
    ),
    (
        'other', 'other_stream', '', '', '', '',
        'Move the op that held the time off the stream that computes.'
    ),
    (
        'stalled', 'fewer_kernels', 'short', '', '', '',
        'Many short pieces: fewer, larger kernels or a graph, each start costs some us.'
    ),
    (
        'stalled', 'record_events', 'nsys cuda long', '', '', '',
        'Capture again with event records (`nsys profile --cuda-event-trace=true`), so that waits lead to '
        || 'their producers.'
    ),
    (
        'stalled', 'connections', 'cuda long', '', '', '',
        'Raise `CUDA_DEVICE_MAX_CONNECTIONS` (32 at most) if many streams are in use, and compare.'
    ),
    (
        'stalled', 'look_beside', 'long', '', '', '',
        'Look at the longest piece in the timeline of the HTML report: what ran beside it?'
    ),
    (
        'stalled', 'nothing', 'grain', '', '', '',
        'Nothing, while the pieces are this short.'
    ),
    (
        'tail', 'closing_communication', 'comm', '', '', '',
        'Move closing communication beside compute of the next step.'
    ),
    (
        'tail', 'closing_copies', '', '', '', '',
        'Move closing copies or a checkpoint beside compute of the next step.'
    ),
    (
        'kernels', 'graph_nodes', 'opaque-graph', '', '', '',
        'Capture graphs node by node (`nsys profile --cuda-graph-trace=node`): which kernels hold the step is'
        || ' not in this capture.'
    ),
    (
        'kernels', 'nsight_compute', 'cuda kernel', '', '', '',
        'Measure the largest kernel with Nsight Compute: its speed-of-light section says whether compute, '
        || 'memory or latency limits it.'
    ),
    (
        'kernels', 'rocprof_compute', 'hip kernel', '', '', '',
        'Measure the largest kernel with ROCm Compute Profiler (`rocprof-compute`): its speed-of-light panel '
        || 'says what limits it.'
    ),
    (
        'kernels', 'memory_layout', 'layout', '', '', '',
        'Kernels that only move or transpose data stand out: keep one memory format (`channels_last`, no '
        || '`.contiguous()` between layers), or let `torch.compile` fuse them.'
    ),
    (
        'R1', 'python_work', '', '', 'no CUDA call', '',
        'The thread was in no CUDA call: look for Python work, data loading, logging, or garbage collection '
        || '(`gc.disable()`, and `gc.collect()` between steps).'
    ),
    (
        'R1', 'sync_call', '', '', 'sync call', '',
        'The thread waited in a synchronizing call: no `.item()`, `.cpu()` or `synchronize()` between '
        || 'launches.'
    ),
    (
        'R1', 'allocator', '', '', 'allocation', '',
        'The thread was in the allocator: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, no '
        || '`empty_cache()`, the largest shapes first.'
    ),
    (
        'R1', 'module_load', '', '', 'module load', '',
        'Kernels were loaded on first use: more warm-up, or `CUDA_MODULE_LOADING=EAGER`.'
    ),
    (
        'R1', 'other_calls', '', '', 'other API', '',
        'The thread was in other CUDA calls: section 3 lists what they cost.'
    ),
    (
        'R1', 'cuda_graph', 'cuda no-graph', '', '', '',
        'Launch once: replay the step as a CUDA graph.'
    ),
    (
        'R1', 'launch_less', '', '', '', '',
        'Launch less: `torch.compile`, foreach or fused optimizers.'
    ),
    (
        'R1', 'own_core', '', '', '', '',
        'Keep the launching thread on a core of its own (`numactl`, `taskset`), away from data loading '
        || 'workers and from NCCL''s proxy threads.'
    ),
    (
        'R2 hw_queue', 'connections', '', '', '', 'more hardware queues',
        'Start every rank with `CUDA_DEVICE_MAX_CONNECTIONS=8` (32 at most).'
    ),
    (
        'R2 hw_queue', 'who_sets_it', '', '', '', '',
        'Look for who sets it lower: launch scripts from Megatron set 1 by habit, and under MPS a client has '
        || 'two queues unless the variable says otherwise.'
    ),
    (
        'R2 hw_queue', 'fewer_streams', '', '', '', '',
        'Use fewer streams.'
    ),
    (
        'R2 stream', 'own_streams', '', '', '', '',
        'Give gathers and reductions streams of their own. FSDP2 has them: look for code that merges streams '
        || 'or runs collectives on the compute stream.'
    ),
    (
        'R2 stream', 'issue_order', '', '', '', '',
        'Issue first what is needed first: on one stream the order of launches is the order of work.'
    ),
    (
        'R2 communicator', 'separate_group', '', '', '', 'separate reduce-scatter communicator',
        'torch 2.13 and later: `set_separate_reduce_scatter_group` lets gathers and reductions pass each '
        || 'other.'
    ),
    (
        'R2 communicator', 'one_more_buffer', '', '', '', '+1 reduce-scatter buffer',
        'torch 2.13 and later: `set_reduce_scatter_max_input_buffers(2)` before the first forward, for the '
        || 'memory of one more gradient buffer.'
    ),
    (
        'R3', 'last_rank', '', '', '', '',
        'Work on the rank that comes last, for its own reason; nothing on the waiting rank helps.'
    ),
    (
        'R3', 'equal_work', '', '', '', '',
        'Give ranks equal work: batches, sequence lengths, data loading.'
    ),
    (
        'H1', 'split_root', '', '', '', '',
        'Split the root''s parameters: wrap the embedding and the output head as units of their own, so that '
        || 'what nothing overlaps is small.'
    ),
    (
        'H1', 'keep_gathered', '', '', '', 'reshard_after_forward=False',
        'Keep them gathered where memory allows (`reshard_after_forward=False`); for an embedding '
        || '`set_unshard_in_backward(False)` drops a gather that backward does not need.'
    ),
    (
        'H1', 'shorter_transfer', '', '', '', '',
        'Make the transfer itself shorter: fewer bytes, a faster link.'
    ),
    (
        'H2', 'larger_batch', '', '', '', '',
        'A larger batch or longer sequences: compute grows, gathers do not.'
    ),
    (
        'H2', 'gather_less', '', '', '', 'reshard_after_forward=False',
        'Gather less: `reshard_after_forward=False` where memory allows, HSDP inside a node.'
    ),
    (
        'H2', 'prefetch_deeper', '', '', '', 'explicit prefetch depth',
        'Prefetch deeper (`set_modules_to_forward_prefetch`), for one more buffer.'
    ),
    (
        'H2', 'faster_link', '', '', '', '',
        'A faster link, or smaller types for the parameters that are gathered.'
    )
)

SELECT
    cost,
    action,
    (row_number() OVER ())::INTEGER AS place,
    needs,
    prefers,
    cause,
    modelled_by,
    advice
FROM listed;
