#!/usr/bin/env sysbench
-- SPDX-License-Identifier: BSD-3-Clause
-- rubis.lua - RUBiS, the auction site of Rice University and INRIA, bidding mix.
--
--   sysbench rubis.lua --scale=0.028 --instances=10 --threads=2 --mysql-db=mysql ... prepare
--   sysbench rubis.lua --scale=0.028 --instances=10 --threads=100 --time=60 ... run
--   sysbench rubis.lua --instances=10 ... cleanup
--
-- After RUBiS 1.4.3, PHP version: its tables with their indexes, and the statements of
-- every page that asks the database.  Cardinalities are those of its rubis.properties and
-- ebay_simple_categories.txt, filled in as by its InitDB.java; that only items for sale
-- have bids, and 95 % of all items a comment, is from Cecchet, Marguerite, Zwaenepoel:
-- Performance and scalability of EJB applications (OOPSLA 2002).  A scale of 1 is RUBiS's
-- default database, here 4.3 GB: a million users, 32,667 items for sale in 20 categories,
-- half a million old items, up to 19 bids for each item for sale, descriptions of up to
-- 8 KB, comments of up to 2 KB.  Ten instances of scale 0.028 together have 1.2 GB.  All tables
-- shrink alike, and so do the 62 regions, so that a category has as many items in a region
-- as in RUBiS; the 20 categories stay, with the sizes that they have among each other.
-- Parameters are called as in rubis.properties.  Old items are three quarters of the data,
-- and nearly nobody reads them: --old_items=50000 leaves a tenth, with which 1.2 GB are ten
-- instances of scale 0.13 that have more items for sale, and longer searches.
--
-- Interactions are drawn, each by itself, with the frequencies that RUBiS's client reaches
-- in the long run: its TransitionTable.java walked over default_transitions.txt (all
-- default_transitions_*.txt have the same probabilities), two million pages, sessions of
-- 51 pages; of these pages, those that ask the database.  Its columns do not add up to 1;
-- as in the client, what exceeds 1 is never reached.  11.7 % of these interactions update
-- (9.2 % of all pages).  RUBiS and those who cite it speak of 15 %: what updates is
-- weighted up to 15 %, all else down in proportion; both shares are below.
--
-- Items are those that RUBiS's client would click on: of the last list that this client
-- was shown.  40 % of the searches turn to the next page or the one before, all others
-- begin with the first; the category and the region are new each time, as in RUBiS.
--
-- What else differs from RUBiS:
-- - no web server, no pages without statements, no think time unless asked for (--think);
-- - what is sold out is supplied again.  RUBiS ends the auction, and has 2.7 times as many
--   items bought as put up for sale: a small database would be empty within minutes;
-- - auctions end in 2035, so that a database does not expire on the shelf; old_items holds
--   what ended before, and is read, as in RUBiS, when an item is not for sale: never here;
-- - quantities, reserve prices and buy-now prices have the percentages of rubis.properties
--   among the items for sale too (a slip in RUBiS's InitDB.java leaves these without);
-- - a nickname that registers is one that no other client draws;
-- - long texts are made by the server, not sent to it;
-- - in a transaction where the PHP script has none: putting a bid, searching by region.
--
-- --shift moves what is asked for most, the first pages of each category.

package.path = debug.getinfo(1, "S").source:match("^@(.-)[^/]*$") .. "?.lua;" ..
               package.path
local common = require("common")
local sql, uniform = common.sql, common.uniform

local number_of_users = 1000000
local number_of_old_items = 500000
local percentage_of_unique_items = 80
local percentage_of_items_with_reserve_price = 40
local percentage_of_buy_now_items = 10
local max_quantity_for_multiple_items = 10
local item_description_length = 8192
local max_bids_per_item = 20
local percentage_of_commented_items = 95
local comment_max_length = 2048
local number_of_regions = 62
local number_of_items_per_page = 20

-- Items for sale in each category, from ebay_simple_categories.txt.
local items_per_category = {1374, 2691, 259, 2874, 538, 7521, 664, 586, 1077, 976, 2325,
                            1051, 1420, 170, 1069, 3029, 305, 242, 3671, 825}

-- A bid exceeds the one before by this much, and what its bidder would pay exceeds it by
-- as much again.  In RUBiS, 1 to 10.
local RAISE = 6

-- Times that the user of a session logs in: a session's 51 pages by the frequency of the
-- five that ask for a password.
local LOGINS = 7

local function sizes()
   local scale = sysbench.opt.scale
   if sysbench.opt.old_items < 0 then
      error("--old_items must be 0 or more, not '" .. sysbench.opt.old_items .. "'", 0)
   end
   local n = {
      users = math.max(100, math.floor(number_of_users * scale)),
      old_items = math.max(20, math.floor(sysbench.opt.old_items * scale)),
      regions = math.max(2, math.min(number_of_regions,
                                     math.floor(number_of_regions * scale + 0.5))),
      items_of = {},
      items = 0,
   }
   for category, items in ipairs(items_per_category) do
      n.items_of[category] = math.max(1, math.floor(items * scale))
      n.items = n.items + n.items_of[category]
   end
   n.comments = math.floor((n.old_items + n.items) * percentage_of_commented_items / 100)
   return n
end

local item_columns = [[
   name VARCHAR(100), description TEXT, initial_price FLOAT UNSIGNED NOT NULL,
   quantity INTEGER UNSIGNED NOT NULL, reserve_price FLOAT UNSIGNED DEFAULT 0,
   buy_now FLOAT UNSIGNED DEFAULT 0, nb_of_bids INTEGER UNSIGNED DEFAULT 0,
   max_bid FLOAT UNSIGNED DEFAULT 0, start_date DATETIME, end_date DATETIME,
   seller INTEGER UNSIGNED NOT NULL, category INTEGER UNSIGNED NOT NULL,
   PRIMARY KEY (id), KEY (seller), KEY (category)]]

local tables = {
   {"categories", "id INTEGER UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, " ..
                  "name VARCHAR(50)"},
   {"regions", "id INTEGER UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, " ..
               "name VARCHAR(25)"},
   {"users", [[
      id INTEGER UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, firstname VARCHAR(20),
      lastname VARCHAR(20), nickname VARCHAR(20) NOT NULL UNIQUE,
      password VARCHAR(20) NOT NULL, email VARCHAR(50) NOT NULL, rating INTEGER,
      balance FLOAT, creation_date DATETIME, region INTEGER UNSIGNED NOT NULL,
      KEY auth (nickname, password), KEY (region)]]},
   {"items", "id INTEGER UNSIGNED NOT NULL AUTO_INCREMENT, " .. item_columns},
   {"old_items", "id INTEGER UNSIGNED NOT NULL, " .. item_columns},
   {"bids", [[
      id INTEGER UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
      user_id INTEGER UNSIGNED NOT NULL, item_id INTEGER UNSIGNED NOT NULL,
      qty INTEGER UNSIGNED NOT NULL, bid FLOAT UNSIGNED NOT NULL,
      max_bid FLOAT UNSIGNED NOT NULL, date DATETIME, KEY (item_id), KEY (user_id)]]},
   {"comments", [[
      id INTEGER UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
      from_user_id INTEGER UNSIGNED NOT NULL, to_user_id INTEGER UNSIGNED NOT NULL,
      item_id INTEGER UNSIGNED NOT NULL, rating INTEGER, date DATETIME, comment TEXT,
      KEY (from_user_id), KEY (to_user_id), KEY (item_id)]]},
   {"buy_now", [[
      id INTEGER UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
      buyer_id INTEGER UNSIGNED NOT NULL, item_id INTEGER UNSIGNED NOT NULL,
      qty INTEGER UNSIGNED NOT NULL, date DATETIME, KEY (buyer_id), KEY (item_id)]]},
}

--
-- Loading
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

local function user_of(salt, n)
   return "1 + " .. hash(salt, n.users)
end

-- The columns of an item; what differs between those for sale and the old ones is given.
local function item_row(n, bids, start_date, days, category)
   local price = "(1 + " .. hash("price", 5000) .. ")"
   local function for_some(salt, percentage, value)
      return string.format("IF(%s < %d, %s, 0)", hash(salt, 100), percentage, value)
   end
   return {
      "seq", "CONCAT('RUBiS automatically generated item #', seq)",
      sql.text("description", "seq", 1, item_description_length), price,
      string.format("IF(%s < %d, 1, 1 + %s)", hash("unique", 100),
                    percentage_of_unique_items,
                    hash("quantity", max_quantity_for_multiple_items)),
      for_some("reserve", percentage_of_items_with_reserve_price,
               price .. " + " .. hash("reserved", 1000)),
      for_some("buy", percentage_of_buy_now_items, price .. " + 1000"),
      bids, string.format("IF(%s = 0, 0, %s + %d * (%s + 1))", bids, price, RAISE, bids),
      start_date,
      string.format("%s + INTERVAL 1 + %s DAY", start_date, hash("duration", days)),
      user_of("seller", n), category,
   }
end

-- InitDB.java goes round the categories, and leaves out those that are full: few items
-- of a kind at first, then more and more of the large categories side by side.
local function fill_items(fill, n)
   local item, full = n.old_items, 0
   while true do
      local open, next_full = {}, math.huge
      for category, items in ipairs(n.items_of) do
         if items > full then
            open[#open + 1] = category
            next_full = math.min(next_full, items)
         end
      end
      if #open == 0 then
         return
      end
      local last = item + #open * (next_full - full)
      local category = string.format("ELT(1 + (seq - %d) %% %d, %s)", item + 1, #open,
                                     table.concat(open, ", "))
      fill("items", item + 1, last,
           item_row(n, hash("bids", max_bids_per_item), "'2035-01-01'", 7, category))
      item, full = last, next_full
   end
end

local function load(fill, n, con)
   local date = "'2008-01-01' + INTERVAL seq SECOND"
   fill("categories", 1, #items_per_category, {"seq", "CONCAT('Category ', seq)"})
   fill("regions", 1, n.regions, {"seq", "CONCAT('Region ', seq)"})
   fill("old_items", 1, n.old_items,
        item_row(n, "0", "'2008-01-01'", 7, "1 + (seq - 1) % " .. #items_per_category))
   fill_items(fill, n)
   con:query(string.format([[
      INSERT INTO bids SELECT NULL, %s, id, 1 + (seq %% quantity), initial_price + %d * b,
         initial_price + %d * (b + 1), '2008-01-01' + INTERVAL seq MINUTE
      FROM (SELECT id, quantity, initial_price, b.seq AS b, id * %d + b.seq AS seq
            FROM items JOIN seq_1_to_%d AS b ON b.seq <= nb_of_bids) AS each_bid
      ORDER BY id, b]], user_of("bidder", n), RAISE, RAISE, max_bids_per_item,
      max_bids_per_item))

   -- A comment is for the seller of its item: the same expression, of the item's number.
   local item = string.format("(seq * 100 DIV %d)", percentage_of_commented_items)
   fill("comments", 1, n.comments, {
      "seq", user_of("writer", n), (user_of("seller", n):gsub("seq", item)), item,
      "ELT(1 + " .. hash("rating", 5) .. ", -5, -3, 0, 3, 5)", date,
      sql.text("comment", "seq", 1, comment_max_length)})
   con:query(string.format([[
      INSERT INTO users SELECT seq, CONCAT('Great', seq), CONCAT('User', seq),
         CONCAT('user', seq), CONCAT('password', seq),
         CONCAT('Great', seq, '.User', seq, '@rubis.com'), IFNULL(rating, 0), 0, %s,
         1 + (seq - 1) %% %d
      FROM seq_1_to_%d LEFT JOIN (SELECT to_user_id, SUM(rating) AS rating FROM comments
                                  GROUP BY to_user_id) AS rated ON to_user_id = seq]],
      date, n.regions, n.users))
end

--
-- Statements, those of the PHP scripts
--

local statements = {
   authenticate = "SELECT id FROM users WHERE nickname=?s AND password=?s",
   categories = "SELECT * FROM categories",
   regions = "SELECT * FROM regions",
   region = "SELECT * FROM regions WHERE name=?s",
   in_category = [[SELECT items.id,items.name,items.initial_price,items.max_bid,
      items.nb_of_bids,items.end_date FROM items WHERE category=? AND end_date>=NOW()
      LIMIT ?,?]],
   in_region = [[SELECT items.id,items.name,items.initial_price,items.max_bid,
      items.nb_of_bids,items.end_date FROM items,users WHERE items.category=?
      AND items.seller=users.id AND users.region=? AND end_date>=NOW() LIMIT ?,?]],
   item = "SELECT * FROM items WHERE items.id=?",
   old_item = "SELECT * FROM old_items WHERE old_items.id=?",
   item_name = "SELECT name FROM items WHERE items.id=?",
   old_item_name = "SELECT name FROM old_items WHERE old_items.id=?",
   highest_bid = "SELECT MAX(bid) AS bid FROM bids WHERE item_id=?",
   highest_bids = "SELECT bid,qty FROM bids WHERE item_id=? ORDER BY bid DESC LIMIT ?",
   number_of_bids = "SELECT COUNT(*) AS bid FROM bids WHERE item_id=?",
   bids = "SELECT * FROM bids WHERE item_id=? ORDER BY date DESC",
   nickname = "SELECT nickname FROM users WHERE id=?",
   user = "SELECT * FROM users WHERE users.id=?",
   user_called = "SELECT * FROM users WHERE nickname=?s",
   comments = "SELECT * FROM comments WHERE comments.to_user_id=?",

   -- about me
   bid_on = [[SELECT item_id, bids.max_bid FROM bids, items WHERE bids.user_id=?
      AND bids.item_id=items.id AND items.end_date>=NOW() GROUP BY item_id]],
   won = [[SELECT item_id FROM bids, items WHERE bids.user_id=? AND bids.item_id=items.id
      AND TO_DAYS(NOW()) - TO_DAYS(items.end_date) < 30 GROUP BY item_id]],
   bought = [[SELECT * FROM buy_now WHERE buy_now.buyer_id=?
      AND TO_DAYS(NOW()) - TO_DAYS(buy_now.date)<=30]],
   selling = "SELECT * FROM items WHERE items.seller=? AND items.end_date>=NOW()",
   sold = [[SELECT * FROM items WHERE items.seller=?
      AND TO_DAYS(NOW()) - TO_DAYS(items.end_date) < 30]],

   -- what updates
   max_bid = "SELECT max_bid FROM items WHERE id=?",
   set_max_bid = "UPDATE items SET max_bid=?d WHERE id=?",
   add_bid = "INSERT INTO bids VALUES (NULL, ?, ?, ?, ?d, ?d, NOW())",
   count_bid = "UPDATE items SET nb_of_bids=nb_of_bids+1 WHERE id=?",
   set_quantity = "UPDATE items SET quantity=? WHERE id=?",
   add_buy_now = "INSERT INTO buy_now VALUES (NULL, ?, ?, ?, NOW())",
   rating = "SELECT rating FROM users WHERE id=? FOR UPDATE",
   set_rating = "UPDATE users SET rating=? WHERE id=?",
   add_comment = [[INSERT INTO comments VALUES (NULL, ?, ?, ?, ?, NOW(),
      RPAD(?s, ?, ' and so on'))]],
   add_item = [[INSERT INTO items VALUES (NULL, ?s, RPAD(?s, ?, ' and so on'), ?, ?, ?, ?,
      0, 0, NOW(), NOW() + INTERVAL ? DAY, ?, ?)]],
   add_user = "INSERT INTO users VALUES (NULL, ?s, ?s, ?s, ?s, ?s, 0, 0, NOW(), ?)",
}

--
-- What a client remembers of the pages that it has seen, and its interactions
--

local function begin(s)
   s.page = 0 -- of the list that was shown last
   s.list = {} -- its items
   for i = 1, number_of_items_per_page do
      s.list[i] = s.n.old_items + uniform(s.n.items)
   end
   s.item = s.list[1] -- the item that was looked at last, with its ...
   s.quantity, s.price = 1, 1
   s.person = uniform(s.n.users) -- seller, or somebody else whose name was shown
   s.user, s.logins = uniform(s.n.users), LOGINS
   s.registered = 0 -- users that this client added
end

-- A log-in goes on with the session, or begins another user's.
local function next_login(s)
   if s.logins == 0 then
      s.user, s.logins = uniform(s.n.users), LOGINS
   end
   s.logins = s.logins - 1
end

-- PHPprinter.php, authenticate().
local function authenticate(s)
   s:rows("authenticate", "user" .. s.user, "password" .. s.user)
end

local function choose_item(s)
   s.item = s.list[uniform(#s.list)]
end

-- Shows a list, if there is one: else the client stays where it is.
local function show(s, rows)
   if #rows == 0 then
      s.page = 0
      return
   end
   for i, row in ipairs(rows) do
      s.list[i] = tonumber(row[1])
   end
   for i = #rows + 1, #s.list do
      s.list[i] = nil
   end
end

local function turn_page(s)
   if uniform(100) > 40 then
      s.page = 0
   elseif s.page == 0 or uniform(2) == 1 then
      s.page = s.page + 1
   else
      s.page = s.page - 1
   end
end

local function search_in_category(s)
   local category = uniform(#items_per_category)
   turn_page(s)
   local pages = math.ceil(s.n.items_of[category] / number_of_items_per_page)
   local page = s.page < pages and common.shifted(s.page + 1, pages) - 1 or s.page
   show(s, s:transaction(function ()
      return s:rows("in_category", category, page * number_of_items_per_page,
                    number_of_items_per_page)
   end))
end

local function search_in_region(s)
   local category, region = uniform(#items_per_category), uniform(s.n.regions)
   turn_page(s)
   show(s, s:transaction(function ()
      return s:rows("in_region", category, region, s.page * number_of_items_per_page,
                    number_of_items_per_page)
   end))
end

-- What ViewItem.php and PutBid.php read of an item: its row, its bids, its seller.
local function read_item(s)
   local row = s:row("item", s.item) or s:row("old_item", s.item)
   local quantity, seller = tonumber(row[5]), tonumber(row[12])
   local price = tonumber(s:row("highest_bid", s.item)[1])
   if price then
      if quantity > 1 then
         s:rows("highest_bids", s.item, quantity)
      end
      s:rows("number_of_bids", s.item)
   end
   s:rows("nickname", seller)
   return {quantity = quantity, seller = seller, price = price or tonumber(row[4])}
end

local function looked_at(s, item)
   s.quantity, s.person, s.price = item.quantity, item.seller, item.price
end

local function view_item(s)
   choose_item(s)
   looked_at(s, s:transaction(function ()
      return read_item(s)
   end))
end

local function view_user_info(s)
   s:transaction(function ()
      s:rows("user", s.person)
      for _, comment in ipairs(s:rows("comments", s.person)) do
         s:rows("nickname", tonumber(comment[2]))
      end
   end)
end

local function view_bid_history(s)
   local draw = uniform(max_bids_per_item)
   s.person = s:transaction(function ()
      if not s:row("item_name", s.item) then
         s:rows("old_item_name", s.item)
      end
      local bids = s:rows("bids", s.item)
      for _, bid in ipairs(bids) do
         s:rows("nickname", tonumber(bid[2]))
      end
      return #bids > 0 and tonumber(bids[draw % #bids + 1][2]) or s.person
   end)
end

-- For pages that show whole tables.
local function read_only(...)
   local names = {...}
   return function (s)
      s:transaction(function ()
         for _, name in ipairs(names) do
            s:rows(name)
         end
      end)
   end
end

local function select_category(s)
   next_login(s)
   s:transaction(function ()
      authenticate(s)
      s:rows("categories")
   end)
end

local function buy_now(s)
   choose_item(s)
   next_login(s)
   looked_at(s, s:transaction(function ()
      authenticate(s)
      local row = s:row("item", s.item)
      s:rows("nickname", tonumber(row[12]))
      return {quantity = tonumber(row[5]), seller = tonumber(row[12]),
              price = tonumber(row[4])}
   end))
end

local function put_bid(s)
   choose_item(s)
   next_login(s)
   looked_at(s, s:transaction(function ()
      authenticate(s)
      return read_item(s)
   end))
end

local function put_comment(s)
   next_login(s)
   s:transaction(function ()
      authenticate(s)
      s:rows("item", s.item)
      s:rows("user", s.person)
   end)
end

-- AboutMe.php: the user's bids, what it won, bought, sells and sold, and what others say.
local function about_me(s)
   local function show_items(rows, column)
      local items = {}
      for i, row in ipairs(rows) do
         items[i] = {tonumber(row[column])}
         local item = s:row("item", items[i][1])
         s:rows("nickname", tonumber(item[12]))
      end
      return items
   end
   next_login(s)
   local bid_on = s:transaction(function ()
      authenticate(s)
      s:rows("user", s.user)
      local bid_on = show_items(s:rows("bid_on", s.user), 1)
      show_items(s:rows("won", s.user), 1)
      show_items(s:rows("bought", s.user), 3)
      s:rows("selling", s.user)
      s:rows("sold", s.user)
      for _, comment in ipairs(s:rows("comments", s.user)) do
         s:rows("nickname", tonumber(comment[2]))
      end
      return bid_on
   end)
   show(s, bid_on)
end

local function store_bid(s)
   local qty, raise = uniform(math.max(1, s.quantity)), uniform(10)
   local bid, max_bid = s.price + raise, s.price + 2 * raise
   s:transaction(function ()
      if tonumber(s:row("max_bid", s.item)[1]) < max_bid then
         s:run("set_max_bid", max_bid, s.item)
      end
      s:run("add_bid", s.user, s.item, qty, bid, max_bid)
      s:run("count_bid", s.item)
   end)
end

local function store_buy_now(s)
   local wanted, supply = uniform(math.max(1, s.quantity)),
                          uniform(max_quantity_for_multiple_items)
   s:transaction(function ()
      local left = tonumber(s:row("item", s.item)[5]) - wanted
      s:run("set_quantity", left > 0 and left or supply, s.item)
      s:run("add_buy_now", s.user, s.item, wanted)
   end)
end

local function store_comment(s)
   local rating, length = ({-5, -3, 0, 3, 5})[uniform(5)], uniform(comment_max_length)
   s:transaction(function ()
      local before = tonumber(s:row("rating", s.person)[1])
      s:run("set_rating", before + rating, s.person)
      s:run("add_comment", s.user, s.person, s.item, rating, "This is a comment", length)
   end)
end

local function register_item(s)
   local price, number = uniform(5000), uniform(1000000)
   local function for_some(percentage, value)
      return uniform(100) <= percentage and value or 0
   end
   local reserve = for_some(percentage_of_items_with_reserve_price, price + uniform(1000))
   local buy = for_some(percentage_of_buy_now_items, price + reserve + uniform(1000))
   local quantity = uniform(100) <= percentage_of_unique_items and 1 or
                    uniform(max_quantity_for_multiple_items)
   local length, days = uniform(item_description_length), uniform(7)
   local category = uniform(#items_per_category)
   s:transaction(function ()
      s:run("add_item", "RUBiS automatically generated item #" .. number,
            "This incredible item is exactly what you need !", length, price, quantity,
            reserve, buy, days, s.user, category)
   end)
end

local function register_user(s)
   -- Two runs with the same seed meet the same names; then, as in RUBiS, nothing is added.
   local i = string.format("%d_%d_%d", sysbench.opt.seed, s.tid, s.registered)
   local nickname, password, region = "u" .. i, "p" .. i, "Region " .. uniform(s.n.regions)
   s.registered = s.registered + 1
   s:transaction(function ()
      local id = tonumber(s:row("region", region)[1])
      if #s:rows("user_called", nickname) == 0 then
         s:run("add_user", "Great", "User", nickname, password,
               nickname .. "@rubis.com", id)
         s:rows("user_called", nickname)
      end
   end)
end

common.workload {
   name = "rubis",
   options = {
      old_items = {"Old items of a scale of 1", number_of_old_items},
   },
   scale = "Size of an instance: 1 is RUBiS's default, about 4.3 GB",
   sizes = sizes,
   tables = tables,
   load = load,
   statements = statements,
   begin = begin,
   interactions = { -- with their weights; behind them, the matrix's own per cent
      {"BrowseCategories", 654, read_only("categories")}, -- 6.79
      {"SearchItemsInCategory", 2069, search_in_category}, -- 21.49
      {"BrowseRegions", 271, read_only("regions")}, -- 2.81
      {"BrowseCategoriesInRegion", 267, read_only("categories")}, -- 2.77
      {"SearchItemsInRegion", 841, search_in_region}, -- 8.73
      {"ViewItem", 1992, view_item}, -- 20.69
      {"ViewUserInfo", 508, view_user_info}, -- 5.28
      {"ViewBidHistory", 287, view_bid_history}, -- 2.98
      {"BuyNow", 196, buy_now}, -- 2.04
      {"PutBid", 881, put_bid}, -- 9.15
      {"PutComment", 80, put_comment}, -- 0.83
      {"SelectCategoryToSellItem", 73, select_category}, -- 0.76
      {"AboutMe", 381, about_me}, -- 3.96
      {"StoreBid", 864, store_bid, updates = true}, -- 6.75
      {"StoreBuyNow", 257, store_buy_now, updates = true}, -- 2.01
      {"StoreComment", 104, store_comment, updates = true}, -- 0.81
      {"RegisterUser", 182, register_user, updates = true}, -- 1.42
      {"RegisterItem", 93, register_item, updates = true}, -- 0.73
   },
}
