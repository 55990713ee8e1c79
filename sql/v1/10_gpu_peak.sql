-- view:       v1.gpu_peak
-- purpose:    Peak rate of dense matrix products of one GPU by precision, as its vendor's data sheet states it, without sparsity.
-- grain:      gpu, precision
-- depends-on: -
-- materialise: no
-- since:      1
-- columns:
--   gpu         VARCHAR  -       Name of the product.
--   place       INTEGER  -       Patterns are tried in this order; the first match counts.
--   pattern     VARCHAR  -       Regular expression on the device name.
--   precision   VARCHAR  -       fp32, tf32, fp16, bf16, fp8, fp4 or int8.
--   peak_tflops DOUBLE   TFLOP/s Dense peak; for int8 TOP/s.
CREATE OR REPLACE VIEW v1.gpu_peak AS
WITH listed (gpu, pattern, fp32, tf32, fp16, bf16, fp8, fp4, int8) AS (
    -- Data sheets often print the rate with 2:4 sparsity: half of it stands here.
    VALUES
    -- "NVIDIA H200 Tensor Core GPU", data sheet, SXM and NVL.
    ('H200 NVL', '\bH200 NVL\b', 60.0, 417.5, 835.5, 835.5, 1671, NULL, 1671),
    ('GH200', '\bGH200\b', 67.0, 494.7, 989.4, 989.4, 1979, NULL, 1979),
    ('H200 SXM', '\bH200\b', 67.0, 494.7, 989.4, 989.4, 1979, NULL, 1979),
    -- "NVIDIA H100 Tensor Core GPU Architecture", white paper, table of SXM5 and PCIe; NVL: its data sheet.
    ('H100 PCIe', '\bH100 PCIe\b', 51.2, 378, 756, 756, 1513, NULL, 1513),
    ('H100 NVL', '\bH100 NVL\b', 60.0, 417.5, 835.5, 835.5, 1671, NULL, 1671),
    ('H100 SXM', '\bH100\b', 66.9, 494.7, 989.4, 989.4, 1978.9, NULL, 1978.9),
    ('H800 SXM', '\bH800\b', 66.9, 494.7, 989.4, 989.4, 1978.9, NULL, 1978.9),
    ('H20', '\bH20\b', 44.0, 74, 148, 148, 296, NULL, 296),
    -- "NVIDIA Blackwell Architecture Technical Brief", "NVIDIA HGX" and "NVIDIA GB200 NVL72", data sheets; of a
    -- superchip half. Data sheets of B300 differ in 4 bits, so that is left to the user.
    ('GB200', '\bGB200\b', 80.0, 1250, 2500, 2500, 5000, 10000, 5000),
    ('B200', '\bB200\b', 75.0, 1125, 2250, 2250, 4500, 9000, 4500),
    ('B300', '\bB300\b', 75.0, 1125, 2250, 2250, 4500, NULL, NULL),
    -- "NVIDIA A100 Tensor Core GPU", "NVIDIA A30", "NVIDIA A40", "NVIDIA A10", data sheets.
    ('A100', '\bA100\b', 19.5, 156, 312, 312, NULL, NULL, 624),
    ('A800', '\bA800\b', 19.5, 156, 312, 312, NULL, NULL, 624),
    ('A30', '\bA30\b', 10.3, 82, 165, 165, NULL, NULL, 330),
    ('A40', '\bA40\b', 37.4, 74.8, 149.7, 149.7, NULL, NULL, 299.3),
    ('A10', '\bA10\b', 31.2, 62.5, 125, 125, NULL, NULL, 250),
    -- "NVIDIA L40S", "NVIDIA L4", data sheets.
    ('L40S', '\bL40S\b', 91.6, 183, 362, 362, 733, NULL, 733),
    ('L4', '\bL4\b', 30.3, 60, 121, 121, 242.5, NULL, 242.5),
    -- "NVIDIA V100 Tensor Core GPU", data sheet.
    ('V100 PCIe', '\bV100-PCIE', 14.0, NULL, 112, NULL, NULL, NULL, NULL),
    ('V100 SXM2', '\bV100-SXM2', 15.7, NULL, 125, NULL, NULL, NULL, NULL),
    -- "AMD Instinct MI300X", "MI325X" and "MI250X", data sheets; of MI250X one die, which is one device.
    ('MI325X', '\bMI325X\b', 163.4, 653.7, 1307.4, 1307.4, 2614.9, NULL, 2614.9),
    ('MI300X', '\bMI300X\b', 163.4, 653.7, 1307.4, 1307.4, 2614.9, NULL, 2614.9),
    ('MI250X', '\bMI250X\b', 47.9, NULL, 191.5, 191.5, NULL, NULL, 191.5)
),

placed AS (
    SELECT
        *,
        (row_number() OVER ())::INTEGER AS place
    FROM listed
)

SELECT
    p.gpu,
    p.place,
    p.pattern,
    r.precision,
    r.peak_tflops::DOUBLE AS peak_tflops
FROM placed AS p
CROSS JOIN
    LATERAL (
        VALUES
        ('fp32', p.fp32),
        ('tf32', p.tf32),
        ('fp16', p.fp16),
        ('bf16', p.bf16),
        ('fp8', p.fp8),
        ('fp4', p.fp4),
        ('int8', p.int8)
    ) AS r (precision, peak_tflops)
WHERE r.peak_tflops IS NOT NULL;
