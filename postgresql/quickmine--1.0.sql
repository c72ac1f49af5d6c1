-- SPDX-License-Identifier: BSD-3-Clause
-- quickmine--1.0.sql - what is seen of the module; it works without.
\echo Use "CREATE EXTENSION quickmine" to load this file. \quit

CREATE FUNCTION quickmine_stat(
    OUT carrier text, OUT connected boolean, OUT message text,
    OUT connections bigint, OUT threads bigint, OUT transactions bigint,
    OUT queries bigint, OUT ended bigint, OUT failed bigint)
AS 'MODULE_PATHNAME', 'quickmine_stat'
LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

CREATE VIEW quickmine_stat AS SELECT * FROM quickmine_stat();
GRANT SELECT ON quickmine_stat TO PUBLIC;
