-- view:       v1.declared
-- purpose:    What `gapscope.toml` declares about the run, one value a row.
-- grain:      section, item
-- depends-on: v1.run_option
-- materialise: run
-- since:      1
-- columns:
--   section VARCHAR -  Table of the file, such as run, parts or fsdp2.
--   item    VARCHAR -  Key in it.
--   value   VARCHAR -  Value as text; a list as JSON.
CREATE OR REPLACE VIEW v1.declared AS
SELECT
    o.name AS section,
    e.key AS item,
    e.value ->> '$' AS value
FROM v1.run_option AS o
-- `steps` is a pattern, and may be read before it is left out.
CROSS JOIN json_each(CASE WHEN o.name = 'steps' THEN '{}' ELSE o.value END::JSON) AS e
WHERE o.name <> 'steps';
