#!/usr/bin/env sysbench
-- SPDX-License-Identifier: BSD-3-Clause
-- star.lua - decision support on a star schema, in the manner of TPC-H and of the Star Schema
-- Benchmark, for sysbench.  How to run it, --instances, --seed, --think, --shift and what it
-- prints: common.lua.
--
-- A fact table (sales, 600,000 rows for a scale of 1: about 130 MB with its indexes) has keys
-- of four dimensions: days, buyers, goods and shops.  Days rise with the row's number, as in a
-- table that grows by what is sold, with some that came late; the others are drawn, goods and
-- buyers with a skew.
--
-- Six queries, all of which only read: whole scans with a filter and sums, a scan in ranges of
-- days by an index that the table nearly follows, a join by an index that it does not follow,
-- aggregates by a dimension, and two that read few rows of a dimension first.  Parameters are
-- drawn for each; a query is a transaction of its own.

package.path = debug.getinfo(1, "S").source:match("^@(.-)[^/]*$") .. "?.lua;" .. package.path
local common = require("common")
local sql, uniform = common.sql, common.uniform

local DAYS = 1460
local REGIONS = 5
local SKEW = 1.5

local function sizes()
   local scale = sysbench.opt.scale
   return {sales = math.max(math.floor(600000 * scale), 1000),
           buyers = math.max(math.floor(30000 * scale), 100),
           goods = math.max(math.floor(20000 * scale), 100),
           shops = math.max(math.floor(500 * scale), 20)}
end

local tables = {
   {"days", [[
      d_id INT NOT NULL PRIMARY KEY, d_month INT NOT NULL, d_year INT NOT NULL,
      d_weekday INT NOT NULL, KEY (d_year, d_month)]]},
   {"buyers", [[
      b_id INT NOT NULL PRIMARY KEY, b_name VARCHAR(40) NOT NULL, b_region INT NOT NULL,
      b_segment INT NOT NULL, b_address VARCHAR(80) NOT NULL, KEY (b_segment, b_region)]]},
   {"goods", [[
      g_id INT NOT NULL PRIMARY KEY, g_name VARCHAR(60) NOT NULL, g_brand INT NOT NULL,
      g_size INT NOT NULL, g_text VARCHAR(120) NOT NULL, KEY (g_brand)]]},
   {"shops", [[
      s_id INT NOT NULL PRIMARY KEY, s_name VARCHAR(40) NOT NULL, s_region INT NOT NULL]]},
   {"sales", [[
      l_id INT NOT NULL PRIMARY KEY, l_day INT NOT NULL, l_buyer INT NOT NULL,
      l_goods INT NOT NULL, l_shop INT NOT NULL, l_quantity INT NOT NULL,
      l_price INT NOT NULL, l_discount INT NOT NULL, l_text VARCHAR(100) NOT NULL,
      KEY (l_day), KEY (l_goods), KEY (l_buyer)]]},
}

local function load(fill, n)
   fill("days", 1, DAYS, {"seq", "FLOOR((seq - 1) % 365 / 30.5) + 1",
      "FLOOR((seq - 1) / 365) + 1", "seq % 7"})
   fill("buyers", 1, n.buyers, {"seq", sql.text("bn", "seq", 10, 40),
      sql.hash("br", "seq", REGIONS), sql.hash("bs", "seq", 20), sql.text("ba", "seq", 20, 80)})
   fill("goods", 1, n.goods, {"seq", sql.text("gn", "seq", 20, 60), sql.hash("gb", "seq", 400),
      sql.between("gs", "seq", 1, 50), sql.text("gt", "seq", 40, 120)})
   fill("shops", 1, n.shops, {"seq", sql.text("sn", "seq", 10, 40),
      sql.hash("sr", "seq", REGIONS)})
   fill("sales", 1, n.sales, {"seq",
      string.format("GREATEST(1, FLOOR((seq - 1) * %d / %d) + 1 - IF(%s < 3, %s, 0))", DAYS,
         n.sales, sql.hash("ll", "seq", 20), sql.hash("lw", "seq", 30)),
      sql.popular("lb", "seq", n.buyers, SKEW), sql.popular("lg", "seq", n.goods, SKEW),
      sql.between("ls", "seq", 1, n.shops), sql.between("lq", "seq", 1, 50),
      sql.between("lp", "seq", 100, 100000), sql.hash("ld", "seq", 11),
      sql.text("lt", "seq", 40, 100)})
end

local statements = {
   -- As TPC-H's first: all rows up to a day, in groups.
   pricing = [[SELECT l_discount, COUNT(*), SUM(l_quantity), SUM(l_price), AVG(l_price)
      FROM sales IGNORE INDEX (l_day) WHERE l_day <= ? GROUP BY l_discount]],
   -- As its sixth: a sum over a range of days, by the index or by the table.
   forecast = [[SELECT SUM(l_price * l_discount) FROM sales FORCE INDEX (l_day)
      WHERE l_day BETWEEN ? AND ? AND l_discount BETWEEN 3 AND 6 AND l_quantity < ?]],
   -- All sales of a brand's goods: rows all over the table.
   brand = [[SELECT g_id, COUNT(*), SUM(l_price) FROM goods JOIN sales ON l_goods = g_id
      WHERE g_brand = ? GROUP BY g_id]],
   -- What a segment of buyers bought, by month.
   segment = [[SELECT d_year, d_month, SUM(l_price) FROM buyers
      JOIN sales ON l_buyer = b_id JOIN days ON d_id = l_day
      WHERE b_segment = ? AND b_region = ? GROUP BY d_year, d_month]],
   -- Sums of a quarter by the shops' region: part of the table, and two dimensions.
   regions = [[SELECT s_region, COUNT(*), SUM(l_price * (100 - l_discount))
      FROM sales FORCE INDEX (l_day) JOIN shops ON s_id = l_shop
      WHERE l_day BETWEEN ? AND ? GROUP BY s_region]],
   -- The goods that were sold best, of all the time.
   best = [[SELECT l_goods, SUM(l_quantity) AS sold FROM sales IGNORE INDEX (l_goods)
      WHERE l_quantity > ? GROUP BY l_goods ORDER BY sold DESC LIMIT 20]],
}

local function first_day(length)
   return uniform(1, DAYS - length)
end

common.workload {
   name = "star",
   scale = "Size: 1 is 600,000 sales",
   sizes = sizes,
   tables = tables,
   load = load,
   statements = statements,
   interactions = {
      {"pricing", 3, function (s)
         s:rows("pricing", uniform(DAYS - 120, DAYS))
      end},
      {"forecast", 20, function (s)
         local day = first_day(60)
         s:rows("forecast", day, day + 60, uniform(20, 30))
      end},
      {"brand", 45, function (s)
         s:rows("brand", uniform(0, 399))
      end},
      {"segment", 15, function (s)
         s:rows("segment", uniform(0, 19), uniform(0, REGIONS - 1))
      end},
      {"regions", 14, function (s)
         local day = first_day(91)
         s:rows("regions", day, day + 91)
      end},
      {"best", 3, function (s)
         s:rows("best", uniform(5, 25))
      end},
   },
}
