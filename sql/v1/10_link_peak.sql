-- view:       v1.link_peak
-- purpose:    Peak rates of links by device model, as their makers state them; `[device]` of gapscope.toml overrides them.
-- grain:      priority
-- depends-on: -
-- materialise: no
-- since:      1
-- columns:
--   priority       INTEGER -    Rows are tried in this order.
--   pattern        VARCHAR -    LIKE pattern on the lower-case device name.
--   host_link_gb_s DOUBLE  GB/s Each direction between host and device: PCIe x16 after its line code, or NVLink-C2C.
--   peer_link_gb_s DOUBLE  GB/s Each direction of all NVLinks (or Infinity Fabric links) together; NULL without.
--   memory_gb_s    DOUBLE  GB/s Device memory.
--   source         VARCHAR -    Where it is stated.
CREATE OR REPLACE VIEW v1.link_peak AS
-- A lane of PCIe carries 8, 16 or 32 GT/s with 128b/130b: 15.75, 31.5 and 63.0 GB/s each way with sixteen. Data sheets give
-- NVLink as the sum of both ways.
WITH listed (pattern, host_link_gb_s, peer_link_gb_s, memory_gb_s, source) AS (
    VALUES
    ('%gb200%', 450.0, 900.0, 8000.0, 'NVIDIA GB200 NVL72 data sheet'),
    ('%gh200%', 450.0, 450.0, 4000.0, 'NVIDIA GH200 data sheet (HBM3)'),
    ('%b200%', 63.0, 900.0, 8000.0, 'NVIDIA DGX B200 data sheet'),
    ('%h200%', 63.0, 450.0, 4800.0, 'NVIDIA H200 data sheet'),
    ('%h100%nvl%', 63.0, 300.0, 3900.0, 'NVIDIA H100 data sheet (NVL)'),
    ('%h100%pcie%', 63.0, 300.0, 2000.0, 'NVIDIA H100 data sheet (PCIe)'),
    ('%h100%', 63.0, 450.0, 3350.0, 'NVIDIA H100 data sheet (SXM)'),
    ('%h800%', 63.0, 200.0, 3350.0, 'NVIDIA H800 data sheet (SXM)'),
    ('%h20', 63.0, 450.0, 4000.0, 'NVIDIA H20 data sheet'),
    ('%a100%40gb%', 31.5, 300.0, 1555.0, 'NVIDIA A100 data sheet (40 GB)'),
    ('%a100%pcie%80gb%', 31.5, 300.0, 1935.0, 'NVIDIA A100 data sheet (80 GB PCIe)'),
    ('%a100%', 31.5, 300.0, 2039.0, 'NVIDIA A100 data sheet (80 GB SXM)'),
    ('%l40s%', 31.5, NULL, 864.0, 'NVIDIA L40S data sheet'),
    ('%v100%', 15.75, 150.0, 900.0, 'NVIDIA V100 data sheet (SXM2)'),
    ('%mi300x%', 63.0, 448.0, 5300.0, 'AMD MI300X data sheet')
)

SELECT
    (row_number() OVER ())::INTEGER AS priority,
    pattern,
    host_link_gb_s::DOUBLE AS host_link_gb_s,
    peer_link_gb_s::DOUBLE AS peer_link_gb_s,
    memory_gb_s::DOUBLE AS memory_gb_s,
    source
FROM listed;
