"""What to say of captures whose stream waits have no event sync ids (CUDA before 12.8)."""

from __future__ import annotations

from gapscope.ingest.base import Sink


def joined_by_event_id(waits: int, records: int, sink: Sink) -> None:
    """v1.wait_record joins such waits by event id, which is reused, and marks them."""
    sink.quality(
        "event_edges",
        "warn",
        f"{waits} stream waits and {records} records carry no event sync id (CUDA has them from "
        "12.8 on): each wait is taken for one on the latest record of its event id before it in "
        "host order",
        "certainty about which record a wait is for",
    )
