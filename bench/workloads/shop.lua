#!/usr/bin/env sysbench
-- SPDX-License-Identifier: BSD-3-Clause
-- shop.lua - a bookshop like TPC-W's, for sysbench: its tables and its busiest pages.
--
--   sysbench shop.lua --scale=1 ... prepare
--   sysbench shop.lua --scale=1 --threads=16 --time=60 ... run
--   sysbench shop.lua ... cleanup
--
-- It is modelled after TPC-W (items, authors, customers, orders, order lines; the mix of
-- the shopping workload), and is no implementation of that benchmark: no web server, no
-- images, no think time unless asked for.  An event is one interaction; those of more
-- than one statement are one transaction.
--
-- Rows are made by the server itself (SEQUENCE engine), from hashes of their numbers: the
-- same scale gives the same database.  Each thread draws from a generator of its own, so
-- that the same seed and number of threads give the same interactions.
--
-- What is popular is scattered over the tables: rank r has the number r * STRIDE mod n.

sysbench.cmdline.options = {
   scale = {"Size of the shop: 1 is 25,000 items, about 60 MB", 1},
   seed = {"Of what the clients do", 1},
   think = {"Milliseconds between the interactions of a client", 0},
   skew = {"How popular the popular items are: 1 is uniform", 3},
}

local ITEMS = 25000
local SUBJECTS = 24
local STRIDE = 7368787 -- a prime larger than any table

ffi.cdef [[ int usleep(unsigned int); ]]

local function sizes()
   local items = math.max(1000, math.floor(ITEMS * sysbench.opt.scale))
   return {
      items = items,
      authors = math.floor(items / 4),
      customers = items,
      orders = items,
      recent = 40, -- orders that best sellers are taken from
   }
end

local function connect()
   return sysbench.sql.driver():connect()
end

-- A hash of n, of another sequence for each salt, from 0 to below m.
local function hash(salt, n, m)
   return string.format("CRC32(CONCAT('%s', %s)) %% %d", salt, n, m)
end

-- A popular number: a hash's share of one, raised to the skew, is its rank.
local function popular(salt, n, m)
   return string.format("1 + FLOOR(%d * POW(CRC32(CONCAT('%s', %s)) / 4294967296, %g))" ..
                        " * %d %% %d", m, salt, n, sysbench.opt.skew, STRIDE, m)
end

local tables = {
   author = [[
      a_id INT NOT NULL PRIMARY KEY, a_fname VARCHAR(20) NOT NULL,
      a_lname VARCHAR(20) NOT NULL, a_dob DATE NOT NULL, a_bio VARCHAR(700) NOT NULL,
      KEY (a_lname)]],
   item = [[
      i_id INT NOT NULL PRIMARY KEY, i_title VARCHAR(60) NOT NULL, i_a_id INT NOT NULL,
      i_pub_date DATE NOT NULL, i_publisher VARCHAR(60) NOT NULL,
      i_subject VARCHAR(20) NOT NULL, i_desc VARCHAR(1500) NOT NULL,
      i_related1 INT NOT NULL, i_related2 INT NOT NULL, i_related3 INT NOT NULL,
      i_related4 INT NOT NULL, i_related5 INT NOT NULL, i_thumbnail VARCHAR(40) NOT NULL,
      i_srp DECIMAL(8,2) NOT NULL, i_cost DECIMAL(8,2) NOT NULL, i_stock INT NOT NULL,
      KEY (i_subject, i_pub_date), KEY (i_subject, i_title), KEY (i_a_id)]],
   customer = [[
      c_id INT NOT NULL PRIMARY KEY, c_uname VARCHAR(20) NOT NULL,
      c_fname VARCHAR(20) NOT NULL, c_lname VARCHAR(20) NOT NULL,
      c_discount DECIMAL(4,2) NOT NULL, c_balance DECIMAL(10,2) NOT NULL,
      c_data VARCHAR(500) NOT NULL, UNIQUE KEY (c_uname)]],
   orders = [[
      o_id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, o_c_id INT NOT NULL,
      o_date DATETIME NOT NULL, o_total DECIMAL(10,2) NOT NULL,
      o_status VARCHAR(16) NOT NULL, o_address VARCHAR(120) NOT NULL,
      KEY (o_c_id, o_id)]],
   order_line = [[
      ol_o_id INT NOT NULL, ol_id TINYINT NOT NULL, ol_i_id INT NOT NULL,
      ol_qty INT NOT NULL, ol_discount DECIMAL(4,2) NOT NULL,
      ol_comments VARCHAR(100) NOT NULL, PRIMARY KEY (ol_o_id, ol_id)]],
}
local order = {"author", "item", "customer", "orders", "order_line"}

function prepare()
   local con = connect()
   local n = sizes()
   con:query("SET unique_checks = 0, foreign_key_checks = 0")
   for _, name in ipairs(order) do
      con:query("CREATE TABLE " .. name .. " (" .. tables[name] .. ") ENGINE=InnoDB")
   end

   print("Authors and items...")
   con:query(string.format([[
      INSERT INTO author SELECT seq, CONCAT('F', %s), CONCAT(CHAR(65 + %s), 'author', seq),
         '1950-01-01' + INTERVAL %s DAY, RPAD('Born', 300 + %s, ' and wrote')
      FROM seq_1_to_%d]], hash("f", "seq", 1000), hash("l", "seq", 26),
      hash("d", "seq", 18000), hash("b", "seq", 400), n.authors))
   con:query(string.format([[
      INSERT INTO item SELECT seq, CONCAT(CHAR(65 + %s), CHAR(97 + %s), ' title ', seq),
         1 + %s, '1990-01-01' + INTERVAL %s DAY, CONCAT('Publisher ', %s),
         CONCAT('SUBJECT', %s), RPAD('About', 600 + %s, ' a subject'),
         %s, %s, %s, %s, %s, CONCAT('img/thumb_', seq, '.gif'), 10 + %s, 10 + %s, 10 + %s
      FROM seq_1_to_%d]], hash("t", "seq", 26), hash("u", "seq", 26),
      hash("a", "seq", n.authors), hash("p", "seq", 6500), hash("h", "seq", 300),
      hash("s", "seq", SUBJECTS), hash("e", "seq", 800),
      popular("r1", "seq", n.items), popular("r2", "seq", n.items),
      popular("r3", "seq", n.items), popular("r4", "seq", n.items),
      popular("r5", "seq", n.items), hash("x", "seq", 90), hash("y", "seq", 90),
      hash("z", "seq", 20), n.items))

   print("Customers and orders...")
   con:query(string.format([[
      INSERT INTO customer SELECT seq, CONCAT('user', seq), CONCAT('F', %s),
         CONCAT('L', %s), %s / 100, 0, RPAD('Likes', 250 + %s, ' books')
      FROM seq_1_to_%d]], hash("cf", "seq", 1000), hash("cl", "seq", 1000),
      hash("cd", "seq", 50), hash("cb", "seq", 250), n.customers))
   con:query(string.format([[
      INSERT INTO orders SELECT seq, %s, '2008-01-01' + INTERVAL seq MINUTE, 10 + %s,
         'SHIPPED', RPAD('Street', 60 + %s, ' and number')
      FROM seq_1_to_%d]], popular("oc", "seq", n.customers), hash("ot", "seq", 500),
      hash("oa", "seq", 60), n.orders))
   con:query(string.format([[
      INSERT INTO order_line SELECT seq DIV 3 + 1, seq %% 3 + 1, %s, 1 + %s, 0,
         RPAD('', %s, 'as a gift ')
      FROM seq_0_to_%d]], popular("li", "seq", n.items), hash("lq", "seq", 4),
      hash("lc", "seq", 100), 3 * n.orders - 1))
   con:query("ANALYZE TABLE author, item, customer, orders, order_line")
   con:disconnect()
end

function cleanup()
   local con = connect()
   for _, name in ipairs(order) do
      con:query("DROP TABLE IF EXISTS " .. name)
   end
   con:disconnect()
end

-- The statements.  Those with parameters here are prepared; lists and patterns go as text.
local statements = {
   customer = "SELECT c_fname, c_lname, c_discount FROM customer WHERE c_id = ?",
   related = [[SELECT j.i_id, j.i_thumbnail, j.i_title FROM item i JOIN item j ON j.i_id
      IN (i.i_related1, i.i_related2, i.i_related3, i.i_related4, i.i_related5)
      WHERE i.i_id = ?]],
   detail = [[SELECT i.*, a.* FROM item i JOIN author a ON a.a_id = i.i_a_id
      WHERE i.i_id = ?]],
   new_products = [[SELECT i_id, i_title, i_cost, a_fname, a_lname
      FROM item JOIN author ON i_a_id = a_id WHERE i_subject = ?
      ORDER BY i_pub_date DESC, i_id DESC LIMIT 30]],
   best_sellers = [[SELECT STRAIGHT_JOIN i_id, i_title, a_fname, a_lname, SUM(ol_qty) AS qty
      FROM order_line JOIN item ON i_id = ol_i_id JOIN author ON a_id = i_a_id
      WHERE ol_o_id > ? AND i_subject = ? GROUP BY i_id ORDER BY qty DESC, i_id LIMIT 50]],
   by_subject = [[SELECT i_id, i_title, i_cost, a_fname, a_lname
      FROM item JOIN author ON i_a_id = a_id WHERE i_subject = ?
      ORDER BY i_title LIMIT 30]],
   last_order = [[SELECT o_id, o_date, o_total, o_status FROM orders WHERE o_c_id = ?
      ORDER BY o_id DESC LIMIT 1]],
   order_lines = [[SELECT ol_i_id, ol_qty, i_title, i_cost FROM order_line
      JOIN item ON i_id = ol_i_id WHERE ol_o_id = ?]],
   stock = "UPDATE item SET i_stock = IF(i_stock > 5, i_stock - 1, i_stock + 21) WHERE i_id = ?",
   pay = "UPDATE customer SET c_balance = c_balance + ? WHERE c_id = ?",
}

local con, n, prepared

function thread_init()
   con = connect()
   n = sizes()
   math.randomseed(sysbench.opt.seed * 1000003 + sysbench.tid)
   prepared = {}
   for name, text in pairs(statements) do
      local st = {stmt = con:prepare(text), params = {}}
      local params = select(2, text:gsub("?", ""))
      for i = 1, params do
         -- A subject is text, and where there is one, the last parameter.
         st.params[i] = i == params and text:find("i_subject = ?", 1, true) and
            st.stmt:bind_create(sysbench.sql.type.VARCHAR, 20) or
            st.stmt:bind_create(sysbench.sql.type.INT)
      end
      if #st.params > 0 then
         st.stmt:bind_param(unpack(st.params))
      end
      prepared[name] = st
   end
end

function thread_done()
   for _, st in pairs(prepared) do
      st.stmt:close()
   end
   con:disconnect()
end

-- Executes a prepared statement; what it returns is not looked at.
local function execute(name, ...)
   local st = prepared[name]
   for i = 1, select("#", ...) do
      st.params[i]:set((select(i, ...)))
   end
   local rs = st.stmt:execute()
   if rs ~= nil then
      rs:free()
   end
end

local function first_value(sql)
   return tonumber((con:query_row(sql)))
end

local function some(count)
   local rank = math.floor(count * math.random() ^ sysbench.opt.skew)
   return 1 + rank * STRIDE % count
end

local function some_subject()
   return "SUBJECT" .. math.random(0, SUBJECTS - 1)
end

local function letters(count)
   local text = string.char(64 + math.random(26))
   return count == 1 and text or text .. string.char(96 + math.random(26))
end

-- The interactions, with their share of the mix in per mille (TPC-W §5.2.3, shopping;
-- what reads no database is left out, and what is left scaled up).
local interactions = {
   {190, function () -- home
      con:query("BEGIN")
      execute("customer", some(n.customers))
      execute("related", some(n.items))
      con:query("COMMIT")
   end},
   {60, function () -- new products
      execute("new_products", some_subject())
   end},
   {60, function () -- best sellers
      con:query("BEGIN")
      local newest = first_value("SELECT MAX(o_id) FROM orders")
      execute("best_sellers", newest - n.recent, some_subject())
      con:query("COMMIT")
   end},
   {210, function () -- product detail
      execute("detail", some(n.items))
   end},
   {80, function () -- search by subject
      execute("by_subject", some_subject())
   end},
   {70, function () -- search by title
      con:query(string.format([[SELECT i_id, i_title, i_cost, a_fname, a_lname
         FROM item JOIN author ON i_a_id = a_id
         WHERE i_subject = '%s' AND i_title LIKE '%s%%' ORDER BY i_title LIMIT 50]],
         some_subject(), letters(1)))
   end},
   {60, function () -- search by author
      con:query(string.format([[SELECT i_id, i_title, i_cost, a_fname, a_lname
         FROM author JOIN item ON i_a_id = a_id
         WHERE a_lname LIKE '%sauthor%d%%' LIMIT 30]], letters(1), math.random(1, 99)))
   end},
   {160, function () -- shopping cart
      local items = {}
      for i = 1, math.random(1, 4) do
         items[i] = some(n.items)
      end
      con:query("SELECT i_id, i_title, i_cost, i_stock FROM item WHERE i_id IN (" ..
                table.concat(items, ", ") .. ")")
   end},
   {60, function () -- order inquiry
      con:query("BEGIN")
      local customer = some(n.customers)
      execute("last_order", customer)
      local o = first_value("SELECT MAX(o_id) FROM orders WHERE o_c_id = " .. customer)
      if o then
         execute("order_lines", o)
      end
      con:query("COMMIT")
   end},
   {50, function () -- buy confirm
      local customer, lines, items = some(n.customers), {}, {}
      for i = 1, math.random(1, 4) do
         items[i] = some(n.items)
      end
      table.sort(items) -- so that two orders never wait for each other in a circle
      con:query("BEGIN")
      execute("customer", customer)
      con:query(string.format([[INSERT INTO orders (o_c_id, o_date, o_total, o_status,
         o_address) VALUES (%d, NOW(), %d, 'PENDING', 'Street 1')]], customer,
         math.random(10, 500)))
      local o = first_value("SELECT LAST_INSERT_ID()")
      for i, item in ipairs(items) do
         lines[i] = string.format("(%d, %d, %d, %d, 0, '')", o, i, item, math.random(4))
      end
      con:query("INSERT INTO order_line VALUES " .. table.concat(lines, ", "))
      for _, item in ipairs(items) do
         execute("stock", item)
      end
      execute("pay", 10, customer)
      con:query("COMMIT")
   end},
}

local total = 0
for _, interaction in ipairs(interactions) do
   total = total + interaction[1]
end

function event()
   local ticket = math.random(total)
   for _, interaction in ipairs(interactions) do
      ticket = ticket - interaction[1]
      if ticket <= 0 then
         interaction[2]()
         break
      end
   end
   if sysbench.opt.think > 0 then
      ffi.C.usleep(sysbench.opt.think * 1000)
   end
end

function sysbench.hooks.report_cumulative(stat)
   print(string.format("interactions %d seconds %.3f mean_ms %.3f p95_ms %.3f errors %d",
                       stat.events, stat.time_total, stat.latency_avg * 1000,
                       stat.latency_pct * 1000, stat.errors))
end
