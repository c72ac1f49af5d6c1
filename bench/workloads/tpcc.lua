#!/usr/bin/env sysbench
-- SPDX-License-Identifier: BSD-3-Clause
-- tpcc.lua - TPC-C, the wholesale supplier, with the statements of DBT-2.
--
--   sysbench tpcc.lua --warehouses=12 --mysql-db=mysql ... prepare
--   sysbench tpcc.lua --warehouses=12 --threads=40 --time=60 ... run
--   sysbench tpcc.lua ... cleanup
--
-- After the TPC Benchmark C, revision 5.11: the nine tables with the cardinalities of
-- clause 1.2.1 and the contents of clause 4.3.3, the five transactions of clause 2 with
-- the frequencies of clause 5.2.3 (at least 43 % Payment, 4 % of each of the last three,
-- the rest New-Order), their input as in clauses 2.4.1 to 2.8.1: NURand, 1 % of order lines
-- from another warehouse, 15 % of payments by a customer of another one, 60 % of customers
-- by their last name, 1 % of New-Orders rolled back for an item that does not exist.
-- The columns, keys and statements are DBT-2's for MySQL.
--
-- A warehouse takes 95 MB in InnoDB, beside the items' 12 MB: twelve are 1.2 GB.  --scale and
-- --warehouses both give their number, the latter if it is given.  --items and --customers
-- (of each district; as many orders) shrink a warehouse for tests: what comes of it is no
-- TPC-C database any more.
--
-- DBT-2's procedures deviate from the standard; where that would spoil the data, or read
-- other pages, this follows the standard: stock is taken from the supplying warehouse, and
-- its counters are kept (clause 2.4.2.2); of the customers with one last name, it is
-- the one in the middle (2.5.2.2), not the first; c_payment_cnt is kept; what a
-- transaction reads in order to update it, it locks (stock, the oldest new order); a
-- delivery charges the sum of ol_amount, not that times the quantity (2.7.4.2).  Order-
-- Status and Stock-Level only read: 8 % of the transactions.
--
-- What differs from the standard:
-- - sessions send each statement by itself, and read what it returns; DBT-2 has them in
--   stored procedures;
-- - there are no terminals, keying times or think times (--think gives one): each
--   transaction draws its warehouse and district anew, so that a few clients reach the
--   whole database, and Delivery is executed at once, not queued;
-- - an order's lines are in the order of their stock's keys, so that two orders do not
--   wait for each other in a circle;
-- - texts are a few hexadecimal digits and filler, not random letters;
-- - the transactions are drawn by their weights, without the deck of cards of 5.2.4.2.
--
-- --shift moves the popular items and customers.

package.path = debug.getinfo(1, "S").source:match("^@(.-)[^/]*$") .. "?.lua;" ..
               package.path
local common = require("common")
local sql, uniform, nurand, shifted = common.sql, common.uniform, common.nurand,
                                      common.shifted

local ITEMS = 100000
local DISTRICTS = 10 -- of a warehouse
local CUSTOMERS = 3000 -- of a district; it has had an order of each
local LAST_NAMES = 1000
local DATE = "'2008-01-01'"

-- NURand's constants C (clause 2.1.6).  That of last names when loading and when running
-- differ by 65 to 119, but neither by 96 nor by 112 (clause 2.1.6.1).
local C_LAST_LOAD, C_LAST_RUN = 100, 185
local C_ID, OL_I_ID = 259, 7911

local syllables = {"BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION",
                   "EING"}

local function sizes()
   local opt = sysbench.opt
   local function check(name, least, most)
      if opt[name] < least or opt[name] > most then
         error(string.format("--%s must be from %d to %d, not '%s'", name, least, most,
                             opt[name]), 0)
      end
   end
   check("warehouses", 0, 10000)
   check("items", 100, ITEMS)
   check("customers", 30, CUSTOMERS)
   return {
      warehouses = opt.warehouses > 0 and opt.warehouses or
                   math.max(1, math.floor(opt.scale)),
      items = opt.items,
      customers = opt.customers,
      names = math.min(LAST_NAMES, opt.customers),
      new_orders = math.floor(opt.customers * 3 / 10),
   }
end

local address = [[varchar(20) default NULL, %s_street_2 varchar(20) default NULL,
   %s_city varchar(20) default NULL, %s_state char(2) default NULL,
   %s_zip varchar(9) default NULL]]

local function address_of(prefix)
   return prefix .. "_street_1 " .. address:gsub("%%s", prefix)
end

local dist_columns = {}
for d = 1, DISTRICTS do
   dist_columns[d] = string.format("s_dist_%02d varchar(24) default NULL", d)
end

local tables = {
   {"warehouse", "w_id int NOT NULL, w_name varchar(10) default NULL, " ..
                 address_of("w") .. [[, w_tax double default NULL,
      w_ytd decimal(24,12) default NULL, PRIMARY KEY (w_id)]]},
   {"district", "d_id int NOT NULL, d_w_id int NOT NULL, d_name varchar(10) default NULL, " ..
                address_of("d") .. [[, d_tax double default NULL,
      d_ytd decimal(24,12) default NULL, d_next_o_id int default NULL,
      PRIMARY KEY (d_w_id, d_id)]]},
   {"customer", [[
      c_id int NOT NULL, c_d_id int NOT NULL, c_w_id int NOT NULL,
      c_first varchar(16) default NULL, c_middle char(2) default NULL,
      c_last varchar(16) default NULL, ]] .. address_of("c") .. [[,
      c_phone varchar(16) default NULL, c_since timestamp NOT NULL,
      c_credit char(2) default NULL, c_credit_lim decimal(24,12) default NULL,
      c_discount double default NULL, c_balance decimal(24,12) default NULL,
      c_ytd_payment decimal(24,12) default NULL, c_payment_cnt double default NULL,
      c_delivery_cnt double default NULL, c_data text,
      PRIMARY KEY (c_w_id, c_d_id, c_id), KEY (c_w_id, c_d_id, c_last, c_first)]]},
   {"history", [[
      h_c_id int default NULL, h_c_d_id int default NULL, h_c_w_id int default NULL,
      h_d_id int default NULL, h_w_id int default NULL, h_date timestamp NOT NULL,
      h_amount double default NULL, h_data varchar(24) default NULL]]},
   {"new_order", [[
      no_o_id int NOT NULL, no_d_id int NOT NULL, no_w_id int NOT NULL,
      PRIMARY KEY (no_d_id, no_w_id, no_o_id)]]},
   {"orders", [[
      o_id int NOT NULL, o_d_id int NOT NULL, o_w_id int NOT NULL,
      o_c_id int default NULL, o_entry_d timestamp NOT NULL,
      o_carrier_id int default NULL, o_ol_cnt int default NULL,
      o_all_local double default NULL, PRIMARY KEY (o_w_id, o_d_id, o_id),
      KEY (o_w_id, o_d_id, o_c_id, o_id)]]},
   {"order_line", [[
      ol_o_id int NOT NULL, ol_d_id int NOT NULL, ol_w_id int NOT NULL,
      ol_number int NOT NULL, ol_i_id int default NULL,
      ol_supply_w_id int default NULL, ol_delivery_d timestamp NULL default NULL,
      ol_quantity double default NULL, ol_amount double default NULL,
      ol_dist_info varchar(24) default NULL,
      PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)]]},
   {"item", [[
      i_id int NOT NULL, i_im_id int default NULL, i_name varchar(24) default NULL,
      i_price double default NULL, i_data varchar(50) default NULL, PRIMARY KEY (i_id)]]},
   {"stock", [[
      s_i_id int NOT NULL, s_w_id int NOT NULL, s_quantity double NOT NULL, ]] ..
      table.concat(dist_columns, ", ") .. [[, s_ytd decimal(16,8) default NULL,
      s_order_cnt double default NULL, s_remote_cnt double default NULL,
      s_data varchar(50) default NULL, PRIMARY KEY (s_w_id, s_i_id)]]},
}

--
-- Loading (clause 4.3.3.1).  A row's expressions are of seq, from 0 on.
--

-- The hash of a row's number; multiplied, since hashes of the same number under two salts
-- differ by a constant only.
local function hash(salt, m)
   local factor = 1
   for i = 1, #salt do
      factor = (factor * 31 + salt:byte(i)) % 65521
   end
   return "(" .. sql.hash(salt, "seq * " .. factor + 1, m) .. ")"
end

local function between(salt, low, high)
   return string.format("(%d + %s)", low, hash(salt, high - low + 1))
end

-- Text of a fixed or drawn length, which begins differently for each row.
local function text(salt, low, high)
   return string.format("RPAD(HEX(%s), %s, ' and so on')", hash(salt, 4294967296),
                        low == high and low or between(salt .. "#", low, high))
end

-- Clause 4.3.3.1: a tenth of items and stock have it in their data.
local function original(salt)
   return string.format("IF(%s = 0, INSERT(%s, 1 + %s, 8, 'ORIGINAL'), %s)",
                        hash(salt .. "?", 10), text(salt, 26, 50), hash(salt .. "@", 18),
                        text(salt, 26, 50))
end

local function address_row(salt)
   return text(salt .. "1", 10, 20), text(salt .. "2", 10, 20), text(salt .. "c", 10, 20),
          string.format("CONCAT(CHAR(65 + %s), CHAR(65 + %s))", hash(salt .. "s", 26),
                        hash(salt .. "t", 26)),
          string.format("CONCAT(LPAD(%s, 4, '0'), '11111')", hash(salt .. "z", 10000))
end

-- Clause 4.3.2.3.
local function last_name(n)
   return syllables[math.floor(n / 100) + 1] .. syllables[math.floor(n / 10) % 10 + 1] ..
          syllables[n % 10 + 1]
end

local function last_name_row(n)
   local list = "'" .. table.concat(syllables, "', '") .. "'"
   return string.format("CONCAT(ELT((%s) DIV 100 + 1, %s), ELT((%s) DIV 10 %% 10 + 1, %s)," ..
                        " ELT((%s) %% 10 + 1, %s))", n, list, n, list, n, list)
end

local function load(fill, n, con)
   local per_warehouse = DISTRICTS * n.customers
   local w = string.format("(seq DIV %d + 1)", per_warehouse)
   local d = string.format("(seq DIV %d %% %d + 1)", n.customers, DISTRICTS)
   local id = string.format("(seq %% %d + 1)", n.customers)

   -- Rows come in the order of their primary keys, a statement for each warehouse: so
   -- plain inserts are several times faster than InnoDB's sorted bulk load.
   con:query("SET unique_checks = 1, foreign_key_checks = 1")
   local function fill_each(name, rows, row, which)
      for warehouse = 1, n.warehouses do
         fill(name, (warehouse - 1) * rows, warehouse * rows - 1, row, which)
      end
   end

   fill("item", 1, n.items, {
      "seq", between("im", 1, 10000), text("iname", 14, 24),
      between("price", 100, 10000) .. " / 100", original("idata")})

   local street, street_2, city, state, zip = address_row("w")
   fill("warehouse", 1, n.warehouses, {
      "seq", text("wname", 6, 10), street, street_2, city, state, zip,
      hash("wtax", 2001) .. " / 10000", 10 * per_warehouse})

   street, street_2, city, state, zip = address_row("d")
   fill("district", 0, n.warehouses * DISTRICTS - 1, {
      "seq % " .. DISTRICTS .. " + 1", "seq DIV " .. DISTRICTS .. " + 1",
      text("dname", 6, 10), street, street_2, city, state, zip,
      hash("dtax", 2001) .. " / 10000", 10 * n.customers, n.customers + 1})

   local row = {
      string.format("seq %% %d + 1", n.items), string.format("seq DIV %d + 1", n.items),
      between("squant", 10, 100)}
   for i = 1, DISTRICTS do
      row[#row + 1] = text("dist" .. i, 24, 24)
   end
   for _, expression in ipairs({"0", "0", "0", original("sdata")}) do
      row[#row + 1] = expression
   end
   fill_each("stock", n.items, row)

   -- The first of a district have each a name of their own, the others NURand(255,0,999).
   local name = string.format("IF(%s <= %d, %s - 1, ((%s | %s) + %d) %% %d)", id, n.names,
                              id, hash("name255", 256), hash("name999", LAST_NAMES),
                              C_LAST_LOAD, n.names)
   street, street_2, city, state, zip = address_row("c")
   fill_each("customer", per_warehouse, {
      id, d, w, text("first", 8, 16), "'OE'", last_name_row(name), street, street_2, city,
      state, zip, "RPAD(" .. hash("phone", 999999999) .. ", 16, '0')", DATE,
      string.format("IF(%s = 0, 'BC', 'GC')", hash("credit", 10)), "50000",
      hash("discount", 5001) .. " / 10000", "-10", "10", "1", "0", text("cdata", 300, 500)})
   fill_each("history", per_warehouse, {id, d, w, d, w, DATE, "10", text("hdata", 12, 24)})

   -- Each customer of a district has one order, in another order in each district: 7919 is
   -- a prime number above that of customers.
   local delivered = n.customers - n.new_orders
   local entered = DATE .. " + INTERVAL " .. id .. " MINUTE"
   local order_lines = between("lines", 5, 15)
   fill_each("orders", per_warehouse, {
      id, d, w, string.format("(%s * 7919 + seq DIV %d * 271) %% %d + 1", id, n.customers,
                              n.customers),
      entered,
      string.format("IF(%s <= %d, %s, NULL)", id, delivered, between("carrier", 1, 10)),
      order_lines, "1"})
   fill("new_order", 0, n.warehouses * DISTRICTS * n.new_orders - 1, {
      string.format("seq %% %d + %d", n.new_orders, delivered + 1),
      -- in the order of the primary key, district by district
      string.format("seq DIV %d + 1", n.warehouses * n.new_orders),
      string.format("seq DIV %d %% %d + 1", n.new_orders, n.warehouses)})

   -- Fifteen numbers for each order, of which those up to its o_ol_cnt become lines.
   local function of_order(expression)
      return (expression:gsub("seq", "(seq DIV 15)"))
   end
   local o_id = of_order(id)
   fill_each("order_line", 15 * per_warehouse, {
      o_id, of_order(d), of_order(w), "seq % 15 + 1",
      between("line_i", 1, n.items), of_order(w),
      string.format("IF(%s <= %d, %s, NULL)", o_id, delivered, of_order(entered)), "5",
      string.format("IF(%s <= %d, 0, %s / 100)", o_id, delivered,
                    between("amount", 1, 999999)),
      text("info", 24, 24)}, "seq % 15 < " .. of_order(order_lines))
end

--
-- Statements, DBT-2's
--

local statements = {
   -- New-Order
   w_tax = "SELECT w_tax FROM warehouse WHERE w_id = ?",
   next_order = [[SELECT d_tax, d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?
      FOR UPDATE]],
   count_order = [[UPDATE district SET d_next_o_id = d_next_o_id + 1
      WHERE d_w_id = ? AND d_id = ?]],
   discount = [[SELECT c_discount, c_last, c_credit FROM customer
      WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?]],
   add_new_order = "INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES (?, ?, ?)",
   add_order = [[INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_carrier_id,
      o_ol_cnt, o_all_local) VALUES (?, ?, ?, ?, current_timestamp, NULL, ?, ?)]],
   item = "SELECT i_price, i_name, i_data FROM item WHERE i_id = ?",
   take = [[UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?,
      s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + ?
      WHERE s_i_id = ? AND s_w_id = ?]],
   add_line = [[INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id,
      ol_supply_w_id, ol_delivery_d, ol_quantity, ol_amount, ol_dist_info)
      VALUES (?, ?, ?, ?, ?, ?, NULL, ?, ?d, ?s)]],

   -- Payment
   warehouse = [[SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip
      FROM warehouse WHERE w_id = ? FOR UPDATE]],
   pay_warehouse = "UPDATE warehouse SET w_ytd = w_ytd + ? / 100 WHERE w_id = ?",
   district = [[SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip
      FROM district WHERE d_id = ? AND d_w_id = ? FOR UPDATE]],
   pay_district = [[UPDATE district SET d_ytd = d_ytd + ? / 100
      WHERE d_id = ? AND d_w_id = ?]],
   customers_called = [[SELECT c_id FROM customer
      WHERE c_w_id = ? AND c_d_id = ? AND c_last = ?s ORDER BY c_first ASC]],
   payer = [[SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state,
      c_zip, c_phone, c_since, c_credit, c_credit_lim, c_discount, c_balance, c_data,
      c_ytd_payment FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?
      FOR UPDATE]],
   pay = [[UPDATE customer SET c_balance = c_balance - ? / 100,
      c_ytd_payment = c_ytd_payment + ? / 100, c_payment_cnt = c_payment_cnt + 1
      WHERE c_id = ? AND c_w_id = ? AND c_d_id = ?]],
   pay_noted = [[UPDATE customer SET c_balance = c_balance - ? / 100,
      c_ytd_payment = c_ytd_payment + ? / 100, c_payment_cnt = c_payment_cnt + 1,
      c_data = substring(concat(?s, ' ', c_data), 1, 500)
      WHERE c_id = ? AND c_w_id = ? AND c_d_id = ?]],
   add_history = [[INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date,
      h_amount, h_data) VALUES (?, ?, ?, ?, ?, current_timestamp, ? / 100, ?s)]],

   -- Order-Status
   customer = [[SELECT c_first, c_middle, c_last, c_balance FROM customer
      WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?]],
   last_order = [[SELECT o_id, o_carrier_id, o_entry_d, o_ol_cnt FROM orders
      WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ? ORDER BY o_id DESC LIMIT 1]],
   lines = [[SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d
      FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?]],

   -- Delivery
   oldest = [[SELECT no_o_id FROM new_order WHERE no_w_id = ? AND no_d_id = ?
      ORDER BY no_o_id ASC LIMIT 1 FOR UPDATE]],
   drop_new_order = [[DELETE FROM new_order
      WHERE no_o_id = ? AND no_w_id = ? AND no_d_id = ?]],
   orderer = [[SELECT o_c_id FROM orders WHERE o_id = ? AND o_w_id = ? AND o_d_id = ?
      FOR UPDATE]],
   set_carrier = [[UPDATE orders SET o_carrier_id = ?
      WHERE o_id = ? AND o_w_id = ? AND o_d_id = ?]],
   deliver_lines = [[UPDATE order_line SET ol_delivery_d = current_timestamp
      WHERE ol_o_id = ? AND ol_w_id = ? AND ol_d_id = ?]],
   amount = [[SELECT SUM(ol_amount) FROM order_line
      WHERE ol_o_id = ? AND ol_w_id = ? AND ol_d_id = ?]],
   charge = [[UPDATE customer SET c_delivery_cnt = c_delivery_cnt + 1,
      c_balance = c_balance + ?d WHERE c_id = ? AND c_w_id = ? AND c_d_id = ?]],

   -- Stock-Level
   newest = "SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?",
   low_stock = [[SELECT count(DISTINCT s_i_id) FROM order_line, stock, district
      WHERE d_id = ? AND d_w_id = ? AND d_id = ol_d_id AND d_w_id = ol_w_id
      AND ol_i_id = s_i_id AND ol_w_id = s_w_id AND s_quantity < ?
      AND ol_o_id BETWEEN ? AND ?]],
}
for d = 1, DISTRICTS do
   statements["stock_" .. d] = string.format([[SELECT s_quantity, s_dist_%02d, s_data
      FROM stock WHERE s_i_id = ? AND s_w_id = ? FOR UPDATE]], d)
end

--
-- Input (clauses 2.4.1 to 2.8.1)
--

local function draw_warehouse(s)
   return uniform(s.n.warehouses)
end

-- Another than the given warehouse, if there is one.
local function draw_other(s, warehouse)
   if s.n.warehouses == 1 then
      return warehouse
   end
   return (warehouse + uniform(s.n.warehouses - 1) - 1) % s.n.warehouses + 1
end

local function draw_district()
   return uniform(DISTRICTS)
end

local function draw_customer(s)
   return shifted(nurand(1023, 1, s.n.customers, C_ID), s.n.customers)
end

-- A customer by number, or 60 times out of 100 by last name: a function that finds it.
local function draw_customer_or_name(s, warehouse, district)
   if uniform(100) > 60 then
      local customer = draw_customer(s)
      return function ()
         return customer
      end
   end
   local name = nurand(255, 0, LAST_NAMES - 1, C_LAST_RUN) % s.n.names
   name = last_name(shifted(name + 1, s.n.names) - 1)
   return function ()
      local rows = s:rows("customers_called", warehouse, district, name)
      return tonumber(rows[math.ceil(#rows / 2)][1])
   end
end

--
-- Transactions
--

local function new_order(s)
   local w, d, c, lines, all_local = draw_warehouse(s), draw_district(), draw_customer(s),
                                     {}, 1
   for i = 1, uniform(5, 15) do
      local supply = uniform(100) == 1 and draw_other(s, w) or w
      all_local = supply == w and all_local or 0
      lines[i] = {item = shifted(nurand(8191, 1, s.n.items, OL_I_ID), s.n.items),
                  supply = supply, quantity = uniform(10)}
   end
   table.sort(lines, function (a, b)
      return a.supply < b.supply or a.supply == b.supply and a.item < b.item
   end)
   if uniform(100) == 1 then
      lines[#lines].item = 0
   end
   s:transaction(function ()
      s:rows("w_tax", w)
      local o = tonumber(s:row("next_order", w, d)[2])
      s:run("count_order", w, d)
      s:rows("discount", w, d, c)
      s:run("add_new_order", o, d, w)
      s:run("add_order", o, d, w, c, #lines, all_local)
      for number, line in ipairs(lines) do
         local item = s:row("item", line.item)
         if not item then
            s:query("ROLLBACK")
            return
         end
         local stock = s:row("stock_" .. d, line.item, line.supply)
         local left = tonumber(stock[1]) - line.quantity
         s:run("take", left >= 10 and left or left + 91, line.quantity,
               line.supply ~= w and 1 or 0, line.item, line.supply)
         s:run("add_line", o, d, w, number, line.item, line.supply, line.quantity,
               line.quantity * tonumber(item[1]), stock[2])
      end
   end)
end

local function payment(s)
   local w, d = draw_warehouse(s), draw_district()
   local c_w, c_d = w, d
   if uniform(100) > 85 then
      c_w, c_d = draw_other(s, w), draw_district()
   end
   local find = draw_customer_or_name(s, c_w, c_d)
   local amount = uniform(100, 500000) -- in cents: sums stay exact
   s:transaction(function ()
      local warehouse = s:row("warehouse", w)
      s:run("pay_warehouse", amount, w)
      local district = s:row("district", d, w)
      s:run("pay_district", amount, d, w)
      local c = find()
      if s:row("payer", c_w, c_d, c)[11] == "BC" then
         s:run("pay_noted", amount, amount,
               string.format("%d %d %d %d %d %.2f", c, c_d, c_w, d, w, amount / 100),
               c, c_w, c_d)
      else
         s:run("pay", amount, amount, c, c_w, c_d)
      end
      s:run("add_history", c, c_d, c_w, d, w, amount,
            (warehouse[1] .. "    " .. district[1]):sub(1, 24))
   end)
end

local function order_status(s)
   local w, d = draw_warehouse(s), draw_district()
   local find = draw_customer_or_name(s, w, d)
   s:transaction(function ()
      local c = find()
      s:rows("customer", w, d, c)
      s:rows("lines", w, d, tonumber(s:row("last_order", w, d, c)[1]))
   end)
end

local function delivery(s)
   local w, carrier = draw_warehouse(s), uniform(10)
   s:transaction(function ()
      for d = 1, DISTRICTS do
         local oldest = s:row("oldest", w, d)
         if oldest then
            local o = tonumber(oldest[1])
            s:run("drop_new_order", o, w, d)
            local c = tonumber(s:row("orderer", o, w, d)[1])
            s:run("set_carrier", carrier, o, w, d)
            s:run("deliver_lines", o, w, d)
            s:run("charge", tonumber(s:row("amount", o, w, d)[1]), c, w, d)
         end
      end
   end)
end

local function stock_level(s)
   local w, d, threshold = draw_warehouse(s), draw_district(), uniform(10, 20)
   s:transaction(function ()
      local newest = tonumber(s:row("newest", w, d)[1])
      s:rows("low_stock", d, w, threshold, newest - 20, newest - 1)
   end)
end

common.workload {
   name = "tpcc",
   options = {
      warehouses = {"Number of warehouses of an instance; 0: --scale", 0},
      items = {"Items, and stock of a warehouse; less than the default for tests only",
               ITEMS},
      customers = {"Customers of a district; less than the default for tests only",
                   CUSTOMERS},
   },
   scale = "Number of warehouses, each 95 MB",
   sizes = sizes,
   tables = tables,
   load = load,
   statements = statements,
   interactions = {
      {"NewOrder", 45, new_order, updates = true},
      {"Payment", 43, payment, updates = true},
      {"OrderStatus", 4, order_status},
      {"Delivery", 4, delivery, updates = true},
      {"StockLevel", 4, stock_level},
   },
}
