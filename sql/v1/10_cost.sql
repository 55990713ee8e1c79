-- view:       v1.cost
-- purpose:    What can hold a step, how that is proven, when the advice does not apply, and how to check a change.
-- grain:      cost
-- depends-on: -
-- materialise: no
-- since:      1
-- columns:
--   cost        VARCHAR  -  Stable name: what the recorded split blames, or a class of the gap with its sub-cause.
--   title       VARCHAR  -  What the report calls it; empty where the class of the gap names itself.
--   mechanism   VARCHAR  -  What happened, in a sentence.
--   proven_by   VARCHAR  -  The evidence without which nothing of it is said.
--   not_when    VARCHAR  -  When the finding does not apply.
--   verify      VARCHAR  -  What a second capture, after the change, must show.
CREATE OR REPLACE VIEW v1.cost AS
WITH listed (cost, title, mechanism, proven_by, not_when, verify) AS (
    VALUES
    (
        'launch', 'late launches',
        'The device had no compute op to run because the launching thread had not issued it yet.',
        'launch-starved time of the recorded split, or blocking time whose producer was itself launched late',
        'The host waits on purpose at the start of a step (data, a barrier, a time-out of another rank), or '
        || 'the profiler''s own cost delays launches: compare with the unprofiled step time.',
        'launch-starved time must shrink by what the step gains, and late ops (section 3) become fewer.'
    ),
    (
        'communication', 'compute waits for communication',
        'Issued compute waited while communication kernels were still running.',
        'blocking time held by running communication, or with communication beside at least half of it',
        'Another rank arrives late (section 4 says who came last), or no compute is left that could overlap.',
        'blocking time must shrink, and exposed communication with it; compute kernels may become slower '
        || 'beside it.'
    ),
    (
        'queue', 'compute waits for ops that stalled',
        'Issued compute waited for an op that was itself issued and idle for no recorded reason: a wait whose'
        || ' event is not in the capture, or a hardware queue that several streams share.',
        'blocking time held by stalled producers while stream waits of the capture are resolved',
        'The waits are unresolved (section 2): then this is ordinary waiting for other device work.',
        'blocking and stalled time together must shrink by what the step gains.'
    ),
    (
        'unresolved', 'compute waits, reason not recorded',
        'Issued compute waited for an op that was itself issued and idle, and stream waits of this capture do'
        || ' not lead to their producers.',
        'blocking time held by stalled producers while stream waits of the capture are not resolved',
        'The op that stalls waits for the host.',
        'first that the share of resolved waits (section 2) rises; then look at this card again.'
    ),
    (
        'copy', 'compute waits for copies',
        'Issued compute waited for memory copies that were still running.',
        'blocking time held by running host copies',
        'The copies already run at the speed of the link and nothing is left to overlap them with.',
        'blocking time held by copies must shrink; the copies themselves may take as long as before.'
    ),
    (
        'device_copy', 'compute waits for device copies',
        'Issued compute waited for device-to-device copies that were still running.',
        'blocking time held by running device-to-device copies',
        'The copies are buffers of a communication library, or single ones of a few us.',
        'count and volume of these copies (section 4) must fall, and blocking time with them.'
    ),
    (
        'packing', 'compute waits for packing',
        'Issued compute waited for kernels that copy parameters into or out of communication buffers.',
        'blocking time held by running packing kernels',
        'Packing is short and only the last link of a chain: the evidence says who held the time.',
        'blocking time held by packing must shrink.'
    ),
    (
        'other', 'compute waits for other device work',
        'Issued compute waited for device work that does not compute.',
        'blocking time held by other device ops',
        'The op is needed exactly there.',
        'blocking time held by that op must shrink.'
    ),
    (
        'stalled', 'issued compute stalls',
        'Compute was issued and did not start, and nothing recorded held it: latency between ops, a wait that'
        || ' is not resolved, or a hardware queue shared by streams.',
        'stalled time of the recorded split',
        'Stream waits are unresolved (section 2): part of this is blocking that cannot be seen.',
        'stalled time must shrink by what the step gains; more resolved waits only move it to blocking.'
    ),
    (
        'tail', 'no compute at the end',
        'After the last compute op of the window the device ran only other work, or nothing.',
        'tail time of the recorded split',
        'The window is cut at the end of the capture.',
        'tail time must shrink by what the step gains.'
    ),
    (
        'kernels', 'compute kernels hold the step',
        'Compute kernels run for most of the window. Whether they run as fast as the device could is not in a'
        || ' timing capture: a duration says nothing of what limits a kernel.',
        'compute busy at least 80 % of the step',
        'The kernels already reach what Nsight Compute calls their speed of light, or the work itself is too '
        || 'much: then only less work, fewer bits or more devices help.',
        'the kernel''s duration at the same shapes must fall (section 3), then the step.'
    ),
    (
        'R1', '',
        'What the op needed was done, but the launching thread had not issued it.',
        'R1 of the gap',
        'The host waits there on purpose (data, a barrier), or the profiler''s own cost delays launches: '
        || 'compare with the step time without it.',
        'R1 must fall, and the step by no more than the modelled saving.'
    ),
    (
        'R2 hw_queue', '',
        'Issued and ready, but its stream shares a hardware queue with another one, and the queue dispatches '
        || 'in the order in which the host issued.',
        'R2 of the gap in hardware queues',
        'Something relies on launch order across streams, as Megatron''s overlap of tensor-parallel '
        || 'communication does; or there are more queues than streams already.',
        'R2 in hardware queues must go, and no streams be found that share one (section 3).'
    ),
    (
        'R2 stream', '',
        'Issued and ready, but behind work on its own stream that no rule puts before it.',
        'R2 of the gap on shared streams',
        'The order on the stream protects memory that is reused: then the rule is missing here.',
        'R2 on shared streams must fall, with T_lb unchanged.'
    ),
    (
        'R2 communicator', '',
        'Issued and ready, but behind another collective of its communicator.',
        'R2 of the gap on a communicator',
        'The link is busy all the time: two communicators then share what one had.',
        'R2 on the communicator must fall; transfers that now overlap may become longer.'
    ),
    (
        'R3', '',
        'Collectives were resident and waited for the last rank to arrive.',
        'R3 of the gap beyond the clock residual',
        'The last rank rotates (section 4): then it is jitter of hosts or links, not one rank.',
        'R3 must fall on the waiting ranks, and the named rank come last less often (section 4).'
    ),
    (
        'H1', '',
        'Compute waits for collectives beside which no compute of the step could run.',
        'H1 of the bound',
        'The awaited collective is as small as it can be.',
        'T_lb itself must fall: H1 is part of it.'
    ),
    (
        'H2', '',
        'Compute waits for collectives that other compute could hide, but too little of it is left.',
        'H2 of the bound',
        'One more buffer does not shorten the bound (section 3): then prefetching does not help.',
        'T_lb itself must fall: H2 is part of it.'
    )
)

SELECT
    cost,
    title,
    mechanism,
    proven_by,
    not_when,
    verify
FROM listed;
