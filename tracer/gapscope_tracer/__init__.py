"""Where the wheel keeps libgapscope_trace.so; `gapscope trace` finds it here."""
