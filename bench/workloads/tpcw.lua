#!/usr/bin/env sysbench
-- SPDX-License-Identifier: BSD-3-Clause
-- tpcw.lua - the database work of TPC-W, the online bookshop (TPC Benchmark W 1.8), with
-- its shopping mix, for sysbench.  How to run it, --instances, --seed, --think, --shift
-- and what it prints: common.lua.
--
--   sysbench tpcw.lua --scale=1 --instances=10 --threads=2 --mysql-db=mysql ... prepare
--   sysbench tpcw.lua --scale=1 --instances=10 --threads=100 --time=60 ... run
--   sysbench tpcw.lua --instances=10 ... cleanup
--
-- Cardinalities (clause 4.3) follow from --items (NUM_ITEMS) and --ebs (NUM_EBS, emulated
-- browsers): authors are a quarter of the items; customers 2880 an EB, addresses twice as
-- many, orders 0.9 times as many, 3 lines an order on average.  Both follow from --scale
-- unless given: 1 is 2,500 items and 25 EBs = 72,000 customers, about 117 MB a database
-- with its indexes.  That is a fortieth of QuickMine's TPC-W (100,000 items, 2.8 million
-- customers, 4 GB), in the same ratio.
--
-- A thread is an emulated browser: pages follow each other by the shopping mix's table of
-- transitions (clause 5.3.1), sessions have an exponentially distributed length (mean
-- 128 interactions: 15 minutes of 7 s), and a page's parameters come from the pages
-- before it: a product from the list last seen, the cart, the customer.  Four of five
-- sessions are of a customer who is known; who it is, and what is searched for, are drawn
-- by NURand with the standard's A (clauses 2.3.2, 2.10.5.1), all else uniformly.
--
-- Each page is a transaction, of the statements of the University of Wisconsin's servlets
-- (TPCW_Database.java); its indexes are theirs, too.  Of the mix, a fifth are pages of the
-- standard's Order group (clause 5.2.3), the `20 % writes' under which papers know it; the
-- pages that really write are shopping_cart, buy_request, buy_confirm and admin_confirm,
-- 15.5 %.  The share of each group is printed.
--
-- Those that read much are the searches by title and author (all items or authors, for what
-- contains a text), new_products and by_subject (all of a subject's items, sorted; a 24th
-- of them) and best_sellers (the lines of the last orders).
--
-- What differs from the standard: there are no web server, no images, no credit cards'
-- authorization and no pause unless --think says so.  --scale gives NUM_ITEMS that the
-- standard does not allow; yet best sellers are of the last 3,333 orders, and related items
-- of three times as many, whatever the scale, as it says (--recent).  Searches by title and
-- author find what contains the text, not what sounds like it.  Rows are of hashes, not DBGEN's.  Keys of customers,
-- addresses, orders and carts come from AUTO_INCREMENT, where the servlets count or take
-- the maximum; the most recent order is the latest, where they take the first; and
-- discounts are fractions throughout.
--
-- --skew above 1 is no part of the standard: what it draws uniformly, items and subjects,
-- are then skewed, so that --shift moves them, too, and not only what NURand draws.

package.path = debug.getinfo(1, "S").source:match("^@(.-)[^/]*$") .. "?.lua;" .. package.path
local common = require("common")
local sql = common.sql

local SUBJECTS = {
   "ARTS", "BIOGRAPHIES", "BUSINESS", "CHILDREN", "COMPUTERS", "COOKING", "HEALTH",
   "HISTORY", "HOME", "HUMOR", "LITERATURE", "MYSTERY", "NON-FICTION", "PARENTING",
   "POLITICS", "REFERENCE", "RELIGION", "ROMANCE", "SELF-HELP", "SCIENCE-NATURE",
   "SCIENCE-FICTION", "SPORTS", "YOUTH", "TRAVEL",
}
local BACKINGS = {"HARDBACK", "PAPERBACK", "USED", "AUDIO", "LIMITED-EDITION"}
local CARDS = {"VISA", "MASTERCARD", "DISCOVER", "AMEX", "DINERS"}
local SHIPPING = {"AIR", "UPS", "FEDEX", "SHIP", "COURIER", "MAIL"}
local STATUS = {"PROCESSING", "SHIPPED", "PENDING", "DENIED"}
local SYLLABLES = {"BA", "OG", "AL", "RI", "RE", "SE", "AT", "UL", "IN", "NG"}
local COUNTRIES = 92
local TAX = 0.0825

-- The value of the first bound that n is below.
local function by_size(n, bounds)
   for _, bound in ipairs(bounds) do
      if n < bound[1] then
         return bound[2]
      end
   end
end

local function sizes()
   local opt = sysbench.opt
   local n = {items = opt.items > 0 and opt.items or math.floor(2500 * opt.scale),
              ebs = opt.ebs > 0 and opt.ebs or 25 * opt.scale}
   n.items = math.max(n.items, 100)
   n.authors = math.floor(n.items / 4)
   n.customers = math.max(math.floor(2880 * n.ebs), 100)
   n.addresses = 2 * n.customers
   n.orders = math.floor(0.9 * n.customers)
   n.titles = math.floor(n.items / 5)
   n.names = math.floor(n.items / 10)
   n.recent = opt.recent
   -- NURand's A for customers and for search texts.
   n.customer_a = by_size(n.customers, {{1e4, 1023}, {4e4, 4095}, {16e4, 16383},
      {64e4, 65535}, {256e4, 262143}, {1024e4, 1048575}, {math.huge, 4194303}})
   n.search_a = by_size(n.items, {{5e3, 63}, {5e4, 511}, {5e5, 4095}, {5e6, 32767},
      {math.huge, 524287}})
   return n
end

local tables = {
   {"country", [[
      co_id INT NOT NULL PRIMARY KEY, co_name VARCHAR(50) NOT NULL,
      co_exchange DECIMAL(12,6) NOT NULL, co_currency VARCHAR(18) NOT NULL,
      KEY (co_name)]]},
   {"author", [[
      a_id INT NOT NULL PRIMARY KEY, a_fname VARCHAR(20) NOT NULL,
      a_lname VARCHAR(20) NOT NULL, a_mname VARCHAR(20) NOT NULL, a_dob DATE NOT NULL,
      a_bio VARCHAR(500) NOT NULL, KEY (a_lname)]]},
   {"item", [[
      i_id INT NOT NULL PRIMARY KEY, i_title VARCHAR(60) NOT NULL, i_a_id INT NOT NULL,
      i_pub_date DATE NOT NULL, i_publisher VARCHAR(60) NOT NULL,
      i_subject VARCHAR(60) NOT NULL, i_desc VARCHAR(500) NOT NULL,
      i_related1 INT NOT NULL, i_related2 INT NOT NULL, i_related3 INT NOT NULL,
      i_related4 INT NOT NULL, i_related5 INT NOT NULL, i_thumbnail VARCHAR(40) NOT NULL,
      i_image VARCHAR(40) NOT NULL, i_srp DECIMAL(15,2) NOT NULL,
      i_cost DECIMAL(15,2) NOT NULL, i_avail DATE NOT NULL, i_stock INT NOT NULL,
      i_isbn CHAR(13) NOT NULL, i_page INT NOT NULL, i_backing VARCHAR(15) NOT NULL,
      i_dimensions VARCHAR(25) NOT NULL,
      KEY (i_title), KEY (i_subject), KEY (i_a_id)]]},
   {"address", [[
      addr_id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, addr_street1 VARCHAR(40) NOT NULL,
      addr_street2 VARCHAR(40) NOT NULL, addr_city VARCHAR(30) NOT NULL,
      addr_state VARCHAR(20) NOT NULL, addr_zip VARCHAR(10) NOT NULL,
      addr_co_id INT NOT NULL, KEY (addr_co_id), KEY (addr_zip)]]},
   {"customer", [[
      c_id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, c_uname VARCHAR(20) NOT NULL,
      c_passwd VARCHAR(20) NOT NULL, c_fname VARCHAR(17) NOT NULL,
      c_lname VARCHAR(17) NOT NULL, c_addr_id INT NOT NULL, c_phone VARCHAR(18) NOT NULL,
      c_email VARCHAR(50) NOT NULL, c_since DATE NOT NULL, c_last_login DATE NOT NULL,
      c_login DATETIME NOT NULL, c_expiration DATETIME NOT NULL,
      c_discount DECIMAL(4,2) NOT NULL, c_balance DECIMAL(15,2) NOT NULL,
      c_ytd_pmt DECIMAL(15,2) NOT NULL, c_birthdate DATE NOT NULL,
      c_data VARCHAR(500) NOT NULL, KEY (c_addr_id), KEY (c_uname)]]},
   {"orders", [[
      o_id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, o_c_id INT NOT NULL,
      o_date DATETIME NOT NULL, o_sub_total DECIMAL(15,2) NOT NULL,
      o_tax DECIMAL(15,2) NOT NULL, o_total DECIMAL(15,2) NOT NULL,
      o_ship_type VARCHAR(10) NOT NULL, o_ship_date DATETIME NOT NULL,
      o_bill_addr_id INT NOT NULL, o_ship_addr_id INT NOT NULL,
      o_status VARCHAR(15) NOT NULL, KEY (o_c_id)]]},
   {"order_line", [[
      ol_id INT NOT NULL, ol_o_id INT NOT NULL, ol_i_id INT NOT NULL, ol_qty INT NOT NULL,
      ol_discount DECIMAL(4,2) NOT NULL, ol_comments VARCHAR(110) NOT NULL,
      PRIMARY KEY (ol_id, ol_o_id), KEY (ol_i_id), KEY (ol_o_id)]]},
   {"cc_xacts", [[
      cx_o_id INT NOT NULL PRIMARY KEY, cx_type VARCHAR(10) NOT NULL,
      cx_num VARCHAR(20) NOT NULL, cx_name VARCHAR(31) NOT NULL, cx_expire DATE NOT NULL,
      cx_auth_id CHAR(15) NOT NULL, cx_xact_amt DECIMAL(15,2) NOT NULL,
      cx_xact_date DATETIME NOT NULL, cx_co_id INT NOT NULL]]},
   {"shopping_cart", [[
      sc_id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, sc_time DATETIME NOT NULL]]},
   {"shopping_cart_line", [[
      scl_sc_id INT NOT NULL, scl_qty INT NOT NULL, scl_i_id INT NOT NULL,
      PRIMARY KEY (scl_sc_id, scl_i_id), KEY (scl_i_id)]]},
}

-- DigSyl(n, digits): a syllable for each digit (clause 4.6.1); here, and in the server.
local function digsyl(n, digits)
   return (string.format("%0" .. digits .. "d", n):gsub("%d", function (digit)
      return SYLLABLES[digit + 1]
   end))
end

local function sql_digsyl(n, digits)
   local text = digits > 1 and string.format("LPAD(%s, %d, '0')", n, digits) or n
   for digit, syllable in ipairs(SYLLABLES) do
      text = string.format("REPLACE(%s, '%d', '%s')", text, digit - 1, syllable)
   end
   return text
end

-- One of a list, by a hash.
local function one_of(salt, n, list)
   return string.format("ELT(1 + %s, '%s')", sql.hash(salt, n, #list),
                        table.concat(list, "', '"))
end

-- Days after a date, from 0 to below some.
local function day(salt, n, date, some)
   return string.format("'%s' + INTERVAL %s DAY", date, sql.hash(salt, n, some))
end

local function load(fill, n, con)
   fill("country", 1, COUNTRIES, {"seq", "CONCAT('COUNTRY', seq)",
      sql.between("x", "seq", 1, 100000) .. " / 1000", "'Dollars'"})

   fill("author", 1, n.authors, {"seq", sql.text("af", "seq", 3, 20),
      -- As many names as searches may ask for.
      string.format("LEFT(CONCAT(%s, %s), 20)",
                    sql_digsyl(string.format("(seq - 1) %% %d", n.names), 7),
                    sql.text("al", "seq", 1, 6)),
      sql.text("am", "seq", 1, 20), day("ad", "seq", "1800-01-01", 69000),
      sql.text("ab", "seq", 125, 500)})

   local srp = sql.between("is", "seq", 100, 99999) .. " / 100"
   local function item(salt)
      return sql.between(salt, "seq", 1, n.items)
   end
   fill("item", 1, n.items, {"seq",
      -- Five books of each title that searches may ask for.
      string.format("LEFT(CONCAT(%s, ' ', %s), 60)",
                    sql_digsyl(string.format("(seq - 1) %% %d", n.titles), 7),
                    sql.text("it", "seq", 1, 45)),
      string.format("IF(seq <= %d, seq, %s)", n.authors,
                    sql.between("ia", "seq", 1, n.authors)),
      day("ip", "seq", "1930-01-01", 25900), sql.text("iu", "seq", 14, 60),
      one_of("ij", "seq", SUBJECTS), sql.text("id", "seq", 100, 500),
      item("r1"), item("r2"), item("r3"), item("r4"), item("r5"),
      "CONCAT('img', seq % 100, '/thumb_', seq, '.gif')",
      "CONCAT('img', seq % 100, '/image_', seq, '.gif')",
      srp, string.format("%s * (1 - %s / 100)", srp, sql.hash("ic", "seq", 51)),
      day("iv", "seq", "2001-01-01", 30), sql.between("ik", "seq", 10, 30),
      "LEFT(MD5(seq), 13)", sql.between("ig", "seq", 20, 9999),
      one_of("ib", "seq", BACKINGS),
      string.format("CONCAT(%s / 100, 'x', %s / 100)", sql.hash("dx", "seq", 9999),
                    sql.hash("dy", "seq", 9999))})

   fill("address", 1, n.addresses, {"seq", sql.text("s1", "seq", 15, 40),
      sql.text("s2", "seq", 15, 40), sql.text("sc", "seq", 4, 30),
      sql.text("ss", "seq", 2, 20), sql.text("sz", "seq", 5, 10),
      sql.between("so", "seq", 1, COUNTRIES)})

   local uname = sql_digsyl("seq", 1)
   fill("customer", 1, n.customers, {"seq", uname, "LOWER(" .. uname .. ")",
      sql.text("cf", "seq", 8, 15), sql.text("cl", "seq", 8, 15),
      sql.between("ca", "seq", 1, n.addresses), sql.between("cp", "seq", 1e8, 9e8),
      string.format("CONCAT(%s, '@', %s, '.com')", uname, sql.text("ce", "seq", 2, 9)),
      day("ci", "seq", "2006-01-01", 700), day("ct", "seq", "2008-01-01", 60),
      "'2008-03-01'", "'2008-03-01 02:00'", sql.hash("cd", "seq", 51) .. " / 100", "0",
      sql.hash("cy", "seq", 100000) .. " / 100", day("cb", "seq", "1880-01-01", 44000),
      sql.text("cc", "seq", 100, 500)})

   local lines = sql.between("ol", "seq", 1, 5)
   local total = sql.between("os", "seq", 1000, 999999) .. " / 100"
   local tax = string.format("ROUND(%s * %g, 2)", total, TAX)
   local date = day("od", "seq", "2008-01-01", 60)
   fill("orders", 1, n.orders, {"seq", sql.between("oc", "seq", 1, n.customers), date,
      total, tax, string.format("%s + %s + 3 + %s", total, tax, lines),
      one_of("oh", "seq", SHIPPING), date .. " + INTERVAL 3 DAY",
      sql.between("ob", "seq", 1, n.addresses), sql.between("oa", "seq", 1, n.addresses),
      one_of("ot", "seq", STATUS)})
   -- All first lines, then all second ones...: in the order of the key.
   for line = 1, 5 do
      local of = string.format("CONCAT(%d, '/', seq)", line)
      con:query(string.format([[INSERT INTO order_line SELECT %d, seq, %s, %s, %s / 100, %s
         FROM seq_1_to_%d WHERE %s >= %d]], line, sql.between("li", of, 1, n.items),
         sql.between("lq", of, 1, 300), sql.hash("ld", of, 31), sql.text("lc", of, 20, 100),
         n.orders, lines, line))
   end
   con:query(string.format([[INSERT INTO cc_xacts SELECT o_id, %s, %s, %s,
      '2009-01-01' + INTERVAL %s DAY, LEFT(MD5(o_id), 15), o_total, o_ship_date, %s
      FROM orders]], one_of("xt", "o_id", CARDS), sql.between("xn", "o_id", 1e8, 9e8),
      sql.text("xm", "o_id", 14, 30), sql.hash("xe", "o_id", 730),
      sql.between("xc", "o_id", 1, COUNTRIES)))
end

local statements = {
   name = "SELECT c_fname, c_lname FROM customer WHERE c_id = ?",
   user_name = "SELECT c_uname FROM customer WHERE c_id = ?",
   related = [[SELECT j.i_id, j.i_thumbnail FROM item i, item j
      WHERE (i.i_related1 = j.i_id OR i.i_related2 = j.i_id OR i.i_related3 = j.i_id
         OR i.i_related4 = j.i_id OR i.i_related5 = j.i_id) AND i.i_id = ?]],
   new_products = [[SELECT i_id, i_title, a_fname, a_lname FROM item, author
      WHERE i_a_id = a_id AND i_subject = ?s
      ORDER BY i_pub_date DESC, i_title LIMIT 50]],
   -- In the order that uses what the last orders are for: to read little.
   best_sellers = [[SELECT STRAIGHT_JOIN i_id, i_title, a_fname, a_lname
      FROM order_line, item, author WHERE i_id = ol_i_id AND i_a_id = a_id
         AND ol_o_id > (SELECT MAX(o_id) - ? FROM orders) AND i_subject = ?s
      GROUP BY i_id, i_title, a_fname, a_lname ORDER BY SUM(ol_qty) DESC LIMIT 50]],
   book = "SELECT * FROM item, author WHERE i_a_id = a_id AND i_id = ?",
   by_subject = [[SELECT * FROM item, author WHERE i_a_id = a_id AND i_subject = ?s
      ORDER BY i_title LIMIT 50]],
   by_title = [[SELECT * FROM item, author WHERE i_a_id = a_id AND i_title LIKE ?s
      ORDER BY i_title LIMIT 50]],
   by_author = [[SELECT * FROM author, item WHERE a_lname LIKE ?s AND i_a_id = a_id
      ORDER BY i_title LIMIT 50]],

   new_cart = "INSERT INTO shopping_cart (sc_time) VALUES (NOW())",
   last_key = "SELECT LAST_INSERT_ID()",
   line_in_cart = [[SELECT scl_qty FROM shopping_cart_line
      WHERE scl_sc_id = ? AND scl_i_id = ?]],
   add_line = [[INSERT INTO shopping_cart_line (scl_sc_id, scl_qty, scl_i_id)
      VALUES (?, ?, ?)]],
   change_line = [[UPDATE shopping_cart_line SET scl_qty = ?
      WHERE scl_sc_id = ? AND scl_i_id = ?]],
   remove_line = "DELETE FROM shopping_cart_line WHERE scl_sc_id = ? AND scl_i_id = ?",
   lines_in_cart = "SELECT COUNT(*) FROM shopping_cart_line WHERE scl_sc_id = ?",
   first_related = "SELECT i_related1 FROM item WHERE i_id = ?",
   touch_cart = "UPDATE shopping_cart SET sc_time = NOW() WHERE sc_id = ?",
   cart = [[SELECT scl_i_id, scl_qty, i_cost, i_title, i_srp, i_backing
      FROM shopping_cart_line, item WHERE scl_i_id = i_id AND scl_sc_id = ?
      ORDER BY scl_i_id]],
   clear_cart = "DELETE FROM shopping_cart_line WHERE scl_sc_id = ?",

   customer = [[SELECT * FROM customer, address, country WHERE c_addr_id = addr_id
      AND addr_co_id = co_id AND c_uname = ?s]],
   refresh_session = [[UPDATE customer SET c_login = NOW(),
      c_expiration = NOW() + INTERVAL 2 HOUR WHERE c_id = ?]],
   country = "SELECT co_id FROM country WHERE co_name = ?s",
   same_address = [[SELECT addr_id FROM address WHERE addr_street1 = ?s
      AND addr_street2 = ?s AND addr_city = ?s AND addr_state = ?s AND addr_zip = ?s
      AND addr_co_id = ?]],
   new_address = [[INSERT INTO address (addr_street1, addr_street2, addr_city, addr_state,
      addr_zip, addr_co_id) VALUES (?s, ?s, ?s, ?s, ?s, ?)]],
   new_customer = [[INSERT INTO customer (c_uname, c_passwd, c_fname, c_lname, c_addr_id,
      c_phone, c_email, c_since, c_last_login, c_login, c_expiration, c_discount, c_balance,
      c_ytd_pmt, c_birthdate, c_data) VALUES ('', '', ?s, ?s, ?, ?s, ?s, NOW(), NOW(), NOW(),
      NOW() + INTERVAL 2 HOUR, ?d, 0, 0, ?s, ?s)]],
   name_customer = "UPDATE customer SET c_uname = ?s, c_passwd = ?s WHERE c_id = ?",

   discount = "SELECT c_discount FROM customer WHERE c_id = ?",
   address_of = "SELECT c_addr_id FROM customer WHERE c_id = ?",
   new_order = [[INSERT INTO orders (o_c_id, o_date, o_sub_total, o_tax, o_total,
      o_ship_type, o_ship_date, o_bill_addr_id, o_ship_addr_id, o_status)
      VALUES (?, NOW(), ?d, ?d, ?d, ?s, NOW() + INTERVAL ? DAY, ?, ?, 'PENDING')]],
   new_line = [[INSERT INTO order_line (ol_id, ol_o_id, ol_i_id, ol_qty, ol_discount,
      ol_comments) VALUES (?, ?, ?, ?, ?d, ?s)]],
   stock = "SELECT i_stock FROM item WHERE i_id = ?",
   set_stock = "UPDATE item SET i_stock = ? WHERE i_id = ?",
   pay = [[INSERT INTO cc_xacts (cx_o_id, cx_type, cx_num, cx_name, cx_expire, cx_auth_id,
      cx_xact_amt, cx_xact_date, cx_co_id) VALUES (?, ?s, ?s, ?s, NOW() + INTERVAL 1 YEAR,
      '', ?d, NOW(), (SELECT co_id FROM address, country
                      WHERE addr_id = ? AND addr_co_id = co_id))]],

   password = "SELECT c_passwd FROM customer WHERE c_uname = ?s",
   last_order = [[SELECT o_id FROM customer, orders WHERE c_id = o_c_id AND c_uname = ?s
      ORDER BY o_date DESC, o_id DESC LIMIT 1]],
   order = [[SELECT orders.*, customer.*, cx_type, ship.addr_street1, ship.addr_street2,
         ship.addr_state, ship.addr_zip, ship_co.co_name, bill.addr_street1,
         bill.addr_street2, bill.addr_state, bill.addr_zip, bill_co.co_name
      FROM customer, orders, cc_xacts, address ship, country ship_co, address bill,
         country bill_co
      WHERE o_id = ? AND cx_o_id = o_id AND c_id = o_c_id
         AND o_bill_addr_id = bill.addr_id AND bill.addr_co_id = bill_co.co_id
         AND o_ship_addr_id = ship.addr_id AND ship.addr_co_id = ship_co.co_id]],
   order_lines = "SELECT * FROM order_line, item WHERE ol_o_id = ? AND ol_i_id = i_id",

   update_item = [[UPDATE item SET i_cost = ?d, i_image = ?s, i_thumbnail = ?s,
      i_pub_date = CURRENT_DATE WHERE i_id = ?]],
   bought_with = [[SELECT ol_i_id FROM orders, order_line
      WHERE o_id = ol_o_id AND NOT (ol_i_id = ?) AND o_c_id IN
         (SELECT o_c_id FROM orders, order_line WHERE o_id = ol_o_id
          AND o_id > (SELECT MAX(o_id) - ? FROM orders) AND ol_i_id = ?)
      GROUP BY ol_i_id ORDER BY SUM(ol_qty) DESC LIMIT 5]],
   set_related = [[UPDATE item SET i_related1 = ?, i_related2 = ?, i_related3 = ?,
      i_related4 = ?, i_related5 = ? WHERE i_id = ?]],
}

--
-- What pages draw, before their transactions
--

local function one(list)
   return list[math.random(#list)]
end

local function letters(low, high)
   local text = {}
   for i = 1, math.random(low, high) do
      text[i] = string.char(96 + math.random(26))
   end
   return table.concat(text)
end

-- One of n that the standard draws uniformly.
local function some(n)
   return common.row(common.skewed(n, sysbench.opt.skew), n)
end

local function some_subject()
   return SUBJECTS[some(#SUBJECTS)]
end

local function some_customer(n)
   return common.shifted(common.nurand(n.customer_a, 1, n.customers), n.customers)
end

-- The beginning of one of some titles or names.
local function search_text(n, count)
   local number = common.nurand(n.search_a, 1, count)
   return "%" .. digsyl(common.shifted(number, count) - 1, 7) .. "%"
end

local function some_address()
   return {letters(15, 40), letters(15, 40), letters(4, 30), letters(2, 20), letters(5, 10),
           country = "COUNTRY" .. math.random(COUNTRIES)}
end

--
-- What pages have in common
--

-- The items in the first column of rows, after those that are given.
local function items_of(rows, items)
   items = items or {}
   for _, row in ipairs(rows) do
      items[#items + 1] = tonumber(row[1])
   end
   return items
end

-- Promotional processing: five books related to one.
local function promotion(s, item)
   return items_of(s:rows("related", item))
end

-- The cart's lines as the next page's form has them, and as orders need them.
local function cart_lines(s, cart)
   local lines = {}
   for i, row in ipairs(s:rows("cart", cart)) do
      lines[i] = {item = tonumber(row[1]), quantity = tonumber(row[2]),
                  cost = tonumber(row[3])}
   end
   return lines
end

local function add_to_cart(s, cart, item)
   local there = s:row("line_in_cart", cart, item)
   if there then
      s:run("change_line", there[1] + 1, cart, item)
   else
      s:run("add_line", cart, 1, item)
   end
end

local function last_key(s)
   return tonumber(s:row("last_key")[1])
end

-- The key of an address, which is entered unless it is there.
local function enter_address(s, a)
   local country = tonumber(s:row("country", a.country)[1])
   local there = s:row("same_address", a[1], a[2], a[3], a[4], a[5], country)
   if there then
      return tonumber(there[1])
   end
   s:run("new_address", a[1], a[2], a[3], a[4], a[5], country)
   return last_key(s)
end

--
-- The pages.  A session s keeps the customer's number (nil: not known yet), the cart's
-- (nil: none yet) with its lines as last shown, the items that the last list linked to,
-- and the item last looked at.
--

local page = {}

-- A list of books: what was promoted beside them, too, is on the page.
local function list(s, name, ...)
   local item, args = some(s.n.items), {...}
   s.items = s:transaction(function ()
      return items_of(s:rows(name, unpack(args)), promotion(s, item))
   end)
end

function page.home(s)
   local item = some(s.n.items)
   s.items = s:transaction(function ()
      if s.customer then
         s:run("name", s.customer)
      end
      return promotion(s, item)
   end)
end

function page.new_products(s)
   list(s, "new_products", some_subject())
end

function page.best_sellers(s)
   list(s, "best_sellers", s.n.recent, some_subject())
end

function page.product_detail(s)
   s.item = one(s.items)
   s:transaction(function ()
      s:run("book", s.item)
   end)
end

function page.search_request(s)
   local item = some(s.n.items)
   s.items = s:transaction(function ()
      return promotion(s, item)
   end)
end

function page.search_results(s)
   local by = math.random(3)
   if by == 1 then
      list(s, "by_author", search_text(s.n, s.n.names))
   elseif by == 2 then
      list(s, "by_title", search_text(s.n, s.n.titles))
   else
      list(s, "by_subject", some_subject())
   end
end

-- New quantities for lines (clause 2.4.5.1): of one line any, of more lines some others;
-- 0 takes a line out.
local function new_quantities(lines)
   local quantities, order = {}, {}
   for i, line in ipairs(lines) do
      quantities[i], order[i] = line.quantity, i
   end
   if #lines == 1 then
      return {math.random(10)}
   end
   for i = 1, #lines > 0 and math.random(#lines) or 0 do
      local j = math.random(i, #lines)
      order[i], order[j] = order[j], order[i]
      local quantity = math.random(0, 8)
      quantities[order[i]] = quantity + (quantity >= quantities[order[i]] and 1 or 0)
   end
   return quantities
end

-- Adds the product that was being looked at, or changes the quantities of a cart that was
-- being looked at, or just shows it; an empty cart gets a random book.
function page.shopping_cart(s)
   local add = s.before == "product_detail" and s.item
   local lines = s.before == "shopping_cart" and s.lines or {}
   local quantities = new_quantities(lines)
   local random, promoted = some(s.n.items), some(s.n.items)
   local after = s:transaction(function ()
      local cart = s.cart
      if not cart then
         s:run("new_cart")
         cart = last_key(s)
      end
      if add then
         add_to_cart(s, cart, add)
      end
      for i, line in ipairs(lines) do
         if quantities[i] == 0 then
            s:run("remove_line", cart, line.item)
         else
            s:run("change_line", quantities[i], cart, line.item)
         end
      end
      if tonumber(s:row("lines_in_cart", cart)[1]) == 0 then
         add_to_cart(s, cart, tonumber(s:row("first_related", random)[1]))
      end
      s:run("touch_cart", cart)
      return {cart = cart, lines = cart_lines(s, cart), items = promotion(s, promoted)}
   end)
   s.cart, s.lines, s.items = after.cart, after.lines, after.items
end

function page.customer_registration(s)
   s:transaction(function ()
      if s.customer then
         s:run("user_name", s.customer)
      end
   end)
end

function page.buy_request(s)
   local first, last, address = letters(8, 15), letters(8, 15), some_address()
   local phone, discount = string.format("%d", math.random(1e8, 9e8)), math.random(0, 50) / 100
   local email = letters(8, 15) .. "@" .. letters(2, 9) .. ".com"
   local born = string.format("%d-%02d-%02d", math.random(1880, 2000), math.random(12),
                              math.random(28))
   local about = letters(100, 500)
   s.customer = s:transaction(function ()
      local customer = s.customer
      if customer then
         s:run("customer", digsyl(customer, 1))
         s:run("refresh_session", customer)
      else
         local at = enter_address(s, address)
         s:run("new_customer", first, last, at, phone, email, discount, born, about)
         customer = last_key(s)
         local name = digsyl(customer, 1)
         s:run("name_customer", name, name:lower(), customer)
      end
      cart_lines(s, s.cart)
      return customer
   end)
end

function page.buy_confirm(s)
   local address = math.random(100) <= 5 and some_address() -- one that is not the customer's
   local card, number = one(CARDS), string.format("%d", math.random(1e8, 9e8))
   local name, comment = letters(14, 30), letters(20, 100)
   local shipping, days = one(SHIPPING), math.random(7)
   s:transaction(function ()
      local discount = tonumber(s:row("discount", s.customer)[1])
      local lines = cart_lines(s, s.cart)
      local ship = address and enter_address(s, address) or
         tonumber(s:row("address_of", s.customer)[1])

      local sub_total, count = 0, 0
      for _, line in ipairs(lines) do
         sub_total = sub_total + line.quantity * line.cost
         count = count + line.quantity
      end
      sub_total = math.floor(sub_total * (1 - discount) * 100 + 0.5) / 100
      local tax = math.floor(sub_total * TAX * 100 + 0.5) / 100
      local total = sub_total + tax + 3 + count

      local bill = tonumber(s:row("address_of", s.customer)[1])
      s:run("new_order", s.customer, sub_total, tax, total, shipping, days, bill, ship)
      local order = last_key(s)
      -- The lines are in the order of their items: no two orders wait in a circle.
      for i, line in ipairs(lines) do
         s:run("new_line", i, order, line.item, line.quantity, discount, comment)
         local left = tonumber(s:row("stock", line.item)[1]) - line.quantity
         s:run("set_stock", left < 10 and left + 21 or left, line.item)
      end
      s:run("pay", order, card, number, name, total, ship)
      s:run("clear_cart", s.cart)
   end)
   s.lines = {}
end

page.order_inquiry = page.customer_registration

function page.order_display(s)
   s.customer = s.customer or some_customer(s.n)
   local name = digsyl(s.customer, 1)
   s:transaction(function ()
      s:run("password", name)
      local order = s:row("last_order", name)
      if order then
         s:run("order", tonumber(order[1]))
         s:run("order_lines", tonumber(order[1]))
      end
   end)
end

function page.admin_request(s)
   s:transaction(function ()
      s:run("book", s.item)
   end)
end

function page.admin_confirm(s)
   local cost, picture = math.random(100, 99999) / 100, math.random(s.n.items)
   local image = string.format("img%d/image_%d.gif", picture % 100, picture)
   local thumbnail = string.format("img%d/thumb_%d.gif", picture % 100, picture)
   s:transaction(function ()
      s:run("book", s.item)
      s:run("update_item", cost, image, thumbnail, s.item)
      local related = items_of(s:rows("bought_with", s.item, 3 * s.n.recent, s.item))
      -- Where there are too few, those after the last.
      for i = #related + 1, 5 do
         related[i] = (related[i - 1] or s.item) % s.n.items + 1
      end
      s:run("set_related", related[1], related[2], related[3], related[4], related[5], s.item)
   end)
end

--
-- From page to page
--

-- Of 9,999 times that a page is left, until how many it is for which other (shopping mix).
local transitions = {
   home = {{"best_sellers", 3124}, {"new_products", 6249}, {"order_inquiry", 6718},
           {"search_request", 7026}, {"shopping_cart", 9999}},
   new_products = {{"home", 156}, {"product_detail", 9735}, {"search_request", 9784},
                   {"shopping_cart", 9999}},
   best_sellers = {{"home", 167}, {"product_detail", 472}, {"search_request", 9927},
                   {"shopping_cart", 9999}},
   product_detail = {{"admin_request", 58}, {"home", 832}, {"product_detail", 1288},
                     {"search_request", 8603}, {"shopping_cart", 9999}},
   search_request = {{"home", 635}, {"search_results", 9135}, {"shopping_cart", 9999}},
   search_results = {{"home", 2657}, {"product_detail", 9294}, {"search_request", 9304},
                     {"shopping_cart", 9999}},
   shopping_cart = {{"customer_registration", 2585}, {"home", 9552}, {"shopping_cart", 9999}},
   customer_registration = {{"buy_request", 8666}, {"home", 8760}, {"search_request", 9999}},
   buy_request = {{"buy_confirm", 4614}, {"home", 6546}, {"shopping_cart", 9999}},
   buy_confirm = {{"home", 84}, {"search_request", 9999}},
   order_inquiry = {{"home", 72}, {"order_display", 8872}, {"search_request", 9999}},
   order_display = {{"home", 69}, {"search_request", 9999}},
   admin_request = {{"admin_confirm", 8999}, {"home", 9999}},
   admin_confirm = {{"home", 9952}, {"search_request", 9999}},
}

-- A browser's next user.
local function begin(s)
   s.customer, s.cart, s.lines = nil, nil, {}
   if math.random(5) > 1 then
      s.customer = some_customer(s.n)
   end
   s.left = math.min(-128 * math.log(1 - math.random()), 512)
end

-- Where a user goes from here; sessions end on the way home.
local function next(s)
   s.before = s.page
   if not s.page then
      s.page = "home"
   else
      local at = math.random(9999)
      for _, to in ipairs(transitions[s.page]) do
         if at <= to[2] then
            s.page = to[1]
            break
         end
      end
   end
   s.left = s.left - 1
   if s.page == "home" and s.left <= 0 then
      begin(s)
   end
   return s.page
end

common.workload {
   name = "tpcw",
   scale = "Size of a shop: 1 is 2,500 items, 25 EBs, about 117 MB",
   options = {
      items = {"NUM_ITEMS; 0: by the scale", 0, sysbench.cmdline.ARG_INT},
      ebs = {"NUM_EBS, of 2880 customers each; 0: by the scale", 0},
      recent = {"Orders that best sellers are taken from", 3333,
                sysbench.cmdline.ARG_INT},
      skew = {"How popular popular items and subjects are; 1: uniform, the standard's", 1},
   },
   sizes = sizes,
   tables = tables,
   load = load,
   statements = statements,
   begin = begin,
   next = next,
   -- With their shares of the shopping mix, in units of 0.01 % (clause 5.2.3).
   interactions = {
      {"home", 1600, page.home, group = "browse"},
      {"new_products", 500, page.new_products, group = "browse"},
      {"best_sellers", 500, page.best_sellers, group = "browse"},
      {"product_detail", 1700, page.product_detail, group = "browse"},
      {"search_request", 2000, page.search_request, group = "browse"},
      {"search_results", 1700, page.search_results, group = "browse"},
      {"shopping_cart", 1160, page.shopping_cart, group = "order", updates = true},
      {"customer_registration", 300, page.customer_registration, group = "order"},
      {"buy_request", 260, page.buy_request, group = "order", updates = true},
      {"buy_confirm", 120, page.buy_confirm, group = "order", updates = true},
      {"order_inquiry", 75, page.order_inquiry, group = "order"},
      {"order_display", 66, page.order_display, group = "order"},
      {"admin_request", 10, page.admin_request, group = "order"},
      {"admin_confirm", 9, page.admin_confirm, group = "order", updates = true},
   },
}
