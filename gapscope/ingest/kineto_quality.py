"""What a Kineto trace cannot tell, as rows of capture quality."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapscope.ingest.base import Sink
    from gapscope.ingest.kineto_convert import Counts
    from gapscope.ingest.kineto_fields import Event
    from gapscope.ingest.kineto_json import EventStream
    from gapscope.ingest.kineto_metadata import TraceMetadata


def write_quality(
    sink: Sink, counts: Counts, stream: EventStream[Event], metadata: TraceMetadata
) -> None:
    """Write one row a check, from what was counted while reading."""
    if stream.truncated is not None:
        sink.quality(
            "truncated",
            "warn",
            f"{stream.truncated.reason}: byte {stream.truncated.offset} of the JSON text; "
            f"{counts.events} complete events are kept, later events and metadata are lost",
            "whole-capture figures",
        )
    elif stream.source.problem is not None:
        sink.quality("truncated", "warn", f"{stream.source.problem}; the JSON text is complete")
    elif stream.unclosed_array:
        sink.quality("truncated", "info", "the event list is not closed; every event is complete")
    if stream.repaired:
        sink.quality(
            "json_repaired",
            "warn",
            f"{stream.repaired} places that are not valid JSON (NaN, control characters, "
            "invalid escapes or UTF-8) were replaced",
        )
    unreadable = counts.unreadable + stream.unreadable
    if unreadable:
        sink.quality(
            "unreadable_events",
            "warn",
            f"{unreadable} of {counts.events + stream.unreadable} events have fields that "
            "cannot be read and are left out",
            "exact event counts",
        )
    if metadata.unreadable:
        places = " and ".join(metadata.unreadable)
        sink.quality("metadata", "warn", f"the metadata {places} the events cannot be read")
    if metadata.second_list:
        sink.quality(
            "duplicate_events_list",
            "warn",
            "the trace has a second traceEvents list; only the first is read",
        )
    if counts.negative or counts.without_duration:
        sink.quality(
            "negative_durations",
            "warn",
            f"{counts.negative} events end before they start, {counts.without_duration} have no "
            "duration; they are kept and not used in unions",
        )
    _overlong_quality(sink, counts)
    skipped = sum(counts.skipped.values())
    if skipped:
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.skipped.most_common(12))
        sink.quality(
            "skipped_events", "info", f"{skipped} of {counts.events} events are not used: {kinds}"
        )
    if len(counts.host_pids) > 1:
        sink.quality(
            "several_processes",
            "warn",
            f"host events come from {len(counts.host_pids)} processes; device events are given "
            "to the first",
            "launch join",
        )
    if metadata.distributed.rank is None:
        sink.quality("rank_identity", "info", "the trace has no distributedInfo.rank")
    if counts.device_ops == 0:
        sink.quality(
            "no_device_ops",
            "warn",
            "the trace has no kernel, memcpy or memset events",
            "device budget",
        )
    else:
        _edge_quality(sink, counts)
    _collective_quality(sink, counts)


def _overlong_quality(sink: Sink, counts: Counts) -> None:
    if counts.first_start is None or counts.last_start is None:
        return
    span = counts.last_start - counts.first_start
    overlong = [length for length in counts.long_ops if length > span]
    if overlong:
        sink.quality(
            "overlong_durations",
            "warn",
            f"{len(overlong)} device ops or API calls last longer than the capture "
            f"(longest {max(overlong)} ns); they are kept",
            "device budget",
        )


def _edge_quality(sink: Sink, counts: Counts) -> None:
    # Kineto leaves out waits on streams that carried no device op so far.
    dropped = counts.wait_calls - counts.waits
    missing = (
        f"; {dropped} of {counts.wait_calls} stream-wait calls have no wait row"
        if dropped > 0
        else ""
    )
    if counts.waits:
        share = 100.0 * counts.resolved_waits / counts.waits
        detail = (
            f"{counts.resolved_waits} of {counts.waits} stream waits ({share:.0f} %) say which "
            f"event record they wait for{missing}"
        )
        if counts.resolved_waits == counts.waits and not missing:
            sink.quality("event_edges", "ok", detail)
        else:
            sink.quality("event_edges", "warn", detail, "exact blocking time")
    elif counts.sync_rows:
        sink.quality(
            "event_edges",
            "warn" if missing else "ok",
            f"{counts.sync_rows} cuda_sync events, no stream wait among them{missing}",
            "exact blocking time" if missing else None,
        )
    else:
        sink.quality(
            "event_edges",
            "info",
            f"no cuda_sync events: blocking is a lower bound{missing}",
            "exact blocking time",
        )


def _collective_quality(sink: Sink, counts: Counts) -> None:
    kernels = counts.communication_kernels
    if not kernels and not counts.collectives:
        sink.quality("collectives", "info", "no communication kernels, no collectives")
    elif not counts.collectives:
        sink.quality(
            "collectives",
            "warn",
            f"{kernels} communication kernels carry no collective arguments and no "
            "record_param_comms ops exist",
            "collective matching",
        )
    else:
        incomplete = counts.collective_source == "kernel arguments" and counts.collectives < kernels
        sink.quality(
            "collectives",
            "warn" if incomplete else "ok",
            f"{counts.collectives} collectives from {counts.collective_source}, "
            f"{kernels} communication kernels",
            "collective matching" if incomplete else None,
        )
