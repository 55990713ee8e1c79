-- view:       v1.communication_family
-- purpose:    Ordered rules that tell which library or dispatcher a communication or packing op is of, and what it does there; the first match counts.
-- grain:      family_rule_id
-- depends-on: -
-- materialise: no
-- since:      1
-- columns:
--   family_rule_id VARCHAR  -  Stable name of the rule.
--   priority       INTEGER  -  Rules are tried in this order.
--   pattern        VARCHAR  -  LIKE pattern on the lower-case name; a backslash escapes `_`.
--   family         VARCHAR  -  nccl, nvshmem, deep_ep, hybrid_ep, ucc, mscclpp, userbuffers, symmetric_memory, custom, dispatcher, fsdp or other.
--   role           VARCHAR  -  transport (moves data, and waits while it does), synchronization, routing, packing or control.
CREATE OR REPLACE VIEW v1.communication_family AS
WITH listed (family_rule_id, pattern, family, role) AS (
    VALUES
    -- A name says what a kernel does within its library; what it says of another's does not count.
    ('hybrid_ep_sync', '%hybrid\_ep%device\_sync%', 'hybrid_ep', 'synchronization'),
    ('hybrid_ep_expected', '%update\_expected\_value%', 'hybrid_ep', 'control'),
    ('hybrid_ep_scan', '%hybrid\_ep::scan%', 'hybrid_ep', 'routing'),
    ('hybrid_ep_preprocessing', '%hybrid\_ep%preprocess%', 'hybrid_ep', 'routing'),
    ('hybrid_ep_permute', '%hybrid\_ep%permute\_kernel%', 'hybrid_ep', 'packing'),
    ('hybrid_ep', '%hybrid\_ep%', 'hybrid_ep', 'transport'),
    ('deep_ep_notify', '%deep\_ep%notify\_%', 'deep_ep', 'synchronization'),
    ('deep_ep_barrier', '%deep\_ep%barrier%', 'deep_ep', 'synchronization'),
    ('deep_ep_layout', '%deep\_ep%get\_dispatch\_layout%', 'deep_ep', 'routing'),
    ('deep_ep_clean', '%deep\_ep%clean\_%', 'deep_ep', 'control'),
    ('deep_ep', '%deep\_ep%', 'deep_ep', 'transport'),
    ('deepep', '%deepep%', 'deep_ep', 'transport'),
    ('userbuffers_counter', '%userbuffers\_inc%', 'userbuffers', 'synchronization'),
    ('userbuffers', '%userbuffers%', 'userbuffers', 'transport'),
    ('msccl', '%msccl%', 'mscclpp', 'transport'),
    ('ucc_reduce', '%ucc\_reduce%', 'ucc', 'transport'),
    ('ucc_executor', '%ucc\_ec\_cuda%', 'ucc', 'transport'),
    ('ucc_task', '%ucc\_eee%', 'ucc', 'transport'),
    ('ucc_layer', '%ucc\_tl\_%', 'ucc', 'transport'),
    ('nccl', '%nccl%', 'nccl', 'transport'),
    ('rccl', '%rccl%', 'nccl', 'transport'),
    ('nvshmem_barrier', '%nvshmem%barrier%', 'nvshmem', 'synchronization'),
    ('nvshmem_sync', '%nvshmem%sync%', 'nvshmem', 'synchronization'),
    ('nvshmem', '%nvshmem%', 'nvshmem', 'transport'),
    ('symmetric_barrier', '%symmetric\_memory%barrier%', 'symmetric_memory', 'synchronization'),
    ('symmetric_signal', '%\_signal\_kernel%', 'symmetric_memory', 'synchronization'),
    ('symmetric_memory', '%symmetric\_memory%', 'symmetric_memory', 'transport'),
    ('one_shot', '%one\_shot\_all\_reduce%', 'symmetric_memory', 'transport'),
    ('two_shot', '%two\_shot\_all\_reduce%', 'symmetric_memory', 'transport'),
    ('multimem', '%multimem\_%', 'symmetric_memory', 'transport'),
    ('custom_all_reduce', '%cross\_device\_reduce%', 'custom', 'transport'),
    ('quick_reduce', '%quickreduce%', 'custom', 'transport'),
    ('all_reduce_fusion', '%allreduce\_fusion%', 'custom', 'transport'),
    -- Packing around collectives and dispatchers.
    ('fsdp_copy_out', '%split\_with\_sizes\_copy%', 'fsdp', 'packing'),
    ('fsdp_chunk_cat', '%chunk\_cat%', 'fsdp', 'packing'),
    ('permute_preprocessing', '%permute\_preprocessing%', 'dispatcher', 'routing'),
    ('row_id_map', '%row\_id\_map%', 'dispatcher', 'routing'),
    ('chunk_sort_map', '%chunk\_sort\_map%', 'dispatcher', 'routing'),
    ('permute', '%permute%', 'dispatcher', 'packing'),
    ('sort_chunks', '%sort\_chunks\_by%', 'dispatcher', 'packing'),
    ('unknown', '%', 'other', 'transport')
)

SELECT
    family_rule_id,
    (row_number() OVER ())::INTEGER AS priority,
    pattern,
    family,
    role
FROM listed;
