-- SPDX-License-Identifier: BSD-3-Clause
-- quickmine--1.0--1.1.sql - carrier is called transport; the next version drops the old name.
\echo Use "ALTER EXTENSION quickmine UPDATE" to load this file. \quit

CREATE OR REPLACE VIEW quickmine_stat AS SELECT *, carrier AS transport FROM quickmine_stat();
