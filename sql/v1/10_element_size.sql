-- view:       v1.element_size
-- purpose:    Bytes of one element of each type, by the names that c10d writes and those of numpy.
-- grain:      dtype
-- depends-on: -
-- materialise: no
-- since:      1
-- columns:
--   dtype         VARCHAR -  Name of the type, in lower case.
--   element_bytes INTEGER B  Size of one element.
CREATE OR REPLACE VIEW v1.element_size AS
WITH listed (dtype, element_bytes) AS (
    VALUES
    ('bool', 1),
    ('byte', 1),
    ('uint8', 1),
    ('char', 1),
    ('int8', 1),
    ('float8_e4m3fn', 1),
    ('float8_e4m3fnuz', 1),
    ('float8_e5m2', 1),
    ('float8_e5m2fnuz', 1),
    ('float8_e8m0fnu', 1),
    ('short', 2),
    ('int16', 2),
    ('uint16', 2),
    ('half', 2),
    ('float16', 2),
    ('bfloat16', 2),
    ('int', 4),
    ('int32', 4),
    ('uint32', 4),
    ('float', 4),
    ('float32', 4),
    ('long', 8),
    ('int64', 8),
    ('uint64', 8),
    ('double', 8),
    ('float64', 8),
    ('complexfloat', 8),
    ('complexdouble', 16)
)

SELECT
    dtype,
    element_bytes
FROM listed;
