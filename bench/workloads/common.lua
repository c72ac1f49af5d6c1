-- SPDX-License-Identifier: BSD-3-Clause
-- common.lua - what the benchmarks in this directory share: options, databases, loading,
-- statements, transactions, random numbers and the report.
--
-- A benchmark describes itself to workload() below: its tables, how the server fills
-- them, its statements and its interactions with their weights.  What comes of it:
--
--   sysbench NAME.lua --mysql-db=mysql --scale=0.5 --instances=10 --threads=2 ... prepare
--   sysbench NAME.lua --mysql-db=mysql --scale=0.5 --instances=10 --threads=100 --time=60 run
--   sysbench NAME.lua --mysql-db=mysql --instances=10 ... cleanup
--
-- The databases are NAME1 to NAMEn for --instances=n (--name gives another NAME); prepare
-- creates them, and its threads load one each at a time.  --mysql-db is only where the
-- connections begin: any database that exists.  Thread t works on instance t % n + 1.
--
-- Rows are made by the server itself (SEQUENCE engine) from hashes of their numbers: the
-- same scale gives the same database.  Each thread draws from a generator of its own: the
-- same --seed and number of threads give the same interactions, but for what a deadlock
-- or what other threads wrote changes.
--
-- --shift=S moves what is popular: every S seconds of a run, ranks belong to other rows
-- (row() and shifted() below), for all threads at once.
--
-- An interaction is an event of sysbench's.  A transaction that the server refuses for a
-- deadlock or a lock wait (errors 1213, 1205: what sysbench ignores by default) is rolled
-- back and tried again with the same input; each refusal counts as one of `errors'.  Any
-- other error ends the run, with an exit status that is not zero.  The pause that --think
-- asks for lies between events and counts in no latency.
--
-- At the end, standard output has a line for each interaction, for each group of them (if
-- the benchmark has groups) and for those that update, and last what other programs read:
--
--   interaction NAME N share PERCENT mean_ms M
--   group NAME N share PERCENT
--   updating N share PERCENT
--   interactions N seconds S mean_ms M p95_ms P errors E

local common = {}

ffi.cdef [[
typedef struct { long sec, nsec; } workload_time;
typedef struct { double count, seconds; } workload_counter;
int clock_gettime(int, workload_time *);
int usleep(unsigned int);
int setenv(const char *, const char *, int);
void *calloc(size_t, size_t);
]]

--
-- Numbers
--

-- Seconds of a clock that nobody sets.
local now_buffer = ffi.new("workload_time")
local function now()
   ffi.C.clock_gettime(1, now_buffer)
   return tonumber(now_buffer.sec) + tonumber(now_buffer.nsec) * 1e-9
end

-- From x to y, all alike.  Every draw of a thread comes from its math.random.
common.uniform = math.random

-- NURand(A, x, y): from x to y, some of them far oftener (TPC-C clause 2.1.6, TPC-W
-- clause 2.1.13); A is a power of two less one, c the constant C of TPC-C.
function common.nurand(A, x, y, c)
   local mixed = bit.bor(math.random(0, A), math.random(x, y))
   return (mixed + (c or 0)) % (y - x + 1) + x
end

-- A rank from 0 to below n; 0 is drawn most: a uniform share of n raised to the skew.
function common.skewed(n, skew)
   return math.floor(n * math.random() ^ skew)
end

local GOLDEN = 0.6180339887498949
local PLASTIC = 0.7548776662466927

local function gcd(a, b)
   while b ~= 0 do
      a, b = b, a % b
   end
   return a
end

-- A number without a common factor with n, and near its golden section: multiples of it,
-- mod n, are a permutation of 0 to n - 1 in which neighbours lie far apart.
local strides = {}
local function stride(n)
   if not strides[n] then
      local s = math.floor(n * GOLDEN)
      while gcd(n, s) ~= 1 do
         s = s + 1
      end
      strides[n] = s
   end
   return strides[n]
end

-- How often what is popular has moved.
local began -- the run, as now() has it
function common.epoch()
   local shift = sysbench.opt.shift
   return shift > 0 and began and math.floor((now() - began) / shift) or 0
end

-- The row, from 1 to n, of a rank from 0 to n - 1: scattered, and moved by --shift.
function common.row(rank, n)
   local offset = math.floor(n * (common.epoch() * PLASTIC % 1))
   return (rank * stride(n) + offset) % n + 1
end

-- The same for what is a row already: itself, until the first shift.
function common.shifted(row, n)
   return common.epoch() == 0 and row or common.row(row - 1, n)
end

--
-- Expressions for the server, of a number n of its own (mostly "seq"); a salt tells
-- hashes of the same number apart.
--

local sql = {}
common.sql = sql

-- A hash from 0 to below m; its values are as good as random.
function sql.hash(salt, n, m)
   return string.format("CRC32(CONCAT('%s', %s)) %% %d", salt, n, m)
end

-- From low to high.
function sql.between(salt, n, low, high)
   return string.format("(%d + %s)", low, sql.hash(salt, n, high - low + 1))
end

-- The row of a skewed rank, as skewed() and row() draw before any shift.
function sql.popular(salt, n, m, skew)
   return string.format("(FLOOR(%d * POW(CRC32(CONCAT('%s', %s)) / 4294967296, %.6g))" ..
                        " * %d %% %d + 1)", m, salt, n, skew, stride(m), m)
end

-- Text of low to high characters, which begins differently for each number.
function sql.text(salt, n, low, high)
   return string.format("RPAD(MD5(CONCAT('%s', %s)), %s, ' and so on')", salt, n,
                        sql.between(salt .. "#", n, low, high))
end

--
-- A session: a thread's connection to its instance.
--
--   s:run(NAME, ...)   executes the statement prepared under a name; returns nothing
--   s:rows(NAME, ...)  the same statement sent as text: its rows, arrays of strings
--   s:row(NAME, ...)   its first row, or nil
--   s:query(TEXT)      for what has no name: BEGIN and the like
--
-- In statements, ? is a parameter that is a whole number, ?d any number, ?s a string (of
-- at most 512 bytes).  sysbench cannot read what a prepared statement returns, hence
-- rows(); without its literals, the text is the prepared statement's.
--

local Session = {}
Session.__index = Session

local MAX_STRING = 512

-- Of instance i.
local function database(i)
   return sysbench.opt.name .. i
end

-- The driver has to live as long as its connections.
local driver
local function connect()
   driver = driver or sysbench.sql.driver()
   return driver:connect()
end

local function prepare_statement(con, text)
   local kinds = {}
   local plain = text:gsub("%?([sd]?)", function (kind)
      kinds[#kinds + 1] = kind
      return "?"
   end)
   local statement = {stmt = con:prepare(plain), params = {}}
   for i, kind in ipairs(kinds) do
      local type = sysbench.sql.type
      statement.params[i] = statement.stmt:bind_create(
         kind == "s" and type.VARCHAR or kind == "d" and type.DOUBLE or type.BIGINT,
         MAX_STRING)
   end
   if #kinds > 0 then
      statement.stmt:bind_param(unpack(statement.params))
   end
   return statement
end

function Session:text_of(name)
   return self.statements[name] or error("no statement is called " .. tostring(name), 3)
end

function Session:run(name, ...)
   local statement = self.prepared[name]
   if not statement then
      statement = prepare_statement(self.con, self:text_of(name))
      self.prepared[name] = statement
   end
   assert(select("#", ...) == #statement.params, name)
   for i, param in ipairs(statement.params) do
      local value = select(i, ...)
      if value ~= nil and param.type == sysbench.sql.type.DOUBLE then
         -- As set() would, did it not write behind the buffer (sysbench 1.0.20).
         param.is_null[0], param.buffer[0] = 0, value
      else
         assert(type(value) ~= "string" or #value <= MAX_STRING, name)
         param:set(value)
      end
   end
   local result = statement.stmt:execute()
   if result ~= nil then
      result:free()
   end
end

local function literal(kind, value)
   if value == nil then
      return "NULL"
   elseif kind == "s" then
      return "'" .. value:gsub("['\\]", "\\%0") .. "'"
   end
   return string.format(kind == "d" and "%.15g" or "%d", value)
end

function Session:rows(name, ...)
   local args, i = {...}, 0
   local text = self:text_of(name):gsub("%?([sd]?)", function (kind)
      i = i + 1
      return literal(kind, args[i])
   end)
   assert(i == select("#", ...), name)
   local result, rows = self.con:query(text), {}
   if result ~= nil then
      for r = 1, tonumber(result.nrows) do
         rows[r] = result:fetch_row()
      end
      result:free()
   end
   return rows
end

function Session:row(name, ...)
   return self:rows(name, ...)[1]
end

function Session:query(text)
   self.con:query(text)
end

-- Runs body between BEGIN and COMMIT, again from its start when the server refuses it.
-- So what is random is drawn before, not in body; and what body keeps, it keeps only
-- when it has been committed: whatever body returns is returned.
function Session:transaction(body)
   while true do
      local done, result = pcall(function ()
         self.con:query("BEGIN")
         local result = body()
         self.con:query("COMMIT")
         return result
      end)
      if done then
         return result
      end
      if type(result) ~= "table" or result.errcode ~= sysbench.error.RESTART_EVENT then
         error(result, 0)
      end
      self.con:query("ROLLBACK")
   end
end

local function open_session(workload)
   local s = setmetatable({con = connect(), statements = workload.statements,
                           prepared = {}}, Session)
   s.tid = sysbench.tid
   s.instance = s.tid % sysbench.opt.instances + 1
   s.n = workload.sizes()
   s.con:query("USE " .. database(s.instance))
   return s
end

local function close_session(s)
   for _, statement in pairs(s.prepared) do
      statement.stmt:close()
   end
   s.con:disconnect()
end

--
-- Loading
--

local function check_options()
   local opt = sysbench.opt
   local function check(name, good, allowed)
      if not good then
         error(string.format("--%s must be %s, not '%s'", name, allowed, opt[name]), 0)
      end
   end
   check("scale", opt.scale > 0, "above 0")
   check("instances", opt.instances >= 1 and opt.instances <= 1000, "from 1 to 1000")
   check("think", opt.think >= 0 and opt.think <= 1e6, "from 0 to 1000000")
   check("shift", opt.shift >= 0, "0 or more")
   check("name", opt.name:match("^[%a_][%w_]*$") and #opt.name <= 48,
         "letters, digits and underscores, not a digit first")
end

-- Calls load for each instance of this thread's.  A command that more than one thread
-- runs has no other way to say that it failed than to exit.
local function for_my_instances(work)
   local done, message = pcall(function ()
      check_options()
      for i = sysbench.tid + 1, sysbench.opt.instances, sysbench.opt.threads do
         local con = connect()
         work(con, i)
         con:disconnect()
      end
   end)
   if not done then
      io.stderr:write(tostring(type(message) == "table" and message.sql_errmsg or message),
                      "\n")
      io.stdout:flush()
      os.exit(1)
   end
end

local function prepare(workload)
   for_my_instances(function (con, i)
      local n, names = workload.sizes(), {}
      print(string.format("Loading %s ...", database(i)))
      con:query("CREATE DATABASE IF NOT EXISTS " .. database(i))
      con:query("USE " .. database(i))
      -- With these, an INSERT into an empty table builds its indexes sorted.
      con:query("SET unique_checks = 0, foreign_key_checks = 0")
      for _, t in ipairs(workload.tables) do
         con:query(string.format("CREATE TABLE %s (%s) ENGINE=InnoDB", t[1], t[2]))
         names[#names + 1] = t[1]
      end
      -- fill(TABLE, LOW, HIGH, EXPRESSIONS, WHICH): a row for each seq from low to high;
      -- WHICH, a condition, if only for some.
      workload.load(function (name, low, high, expressions, which)
         if high >= low then
            con:query(string.format("INSERT INTO %s SELECT %s FROM seq_%d_to_%d WHERE %s",
                                    name, table.concat(expressions, ",\n"), low, high,
                                    which or "1"))
         end
      end, n, con)
      con:query("ANALYZE TABLE " .. table.concat(names, ", "))
   end)
end

local function cleanup()
   for_my_instances(function (con, i)
      con:query("DROP DATABASE IF EXISTS " .. database(i))
   end)
end

--
-- Running
--

-- The threads' Lua states, and that of the report, share nothing but the process: the
-- address of the counters, an array of kinds for each thread and first the time at which
-- the run began, is left in its environment.
local ADDRESS = "SYSBENCH_WORKLOAD_COUNTERS"

local function shared_counters()
   return ffi.cast("workload_counter *", ffi.cast("intptr_t", tonumber(os.getenv(ADDRESS))))
end

-- workload{...}: defines what sysbench calls.
--
--   name          of the benchmark, and of its databases
--   options       beside those below, as in sysbench.cmdline.options
--   scale         what a scale of 1 is, for --help
--   sizes()       a table of cardinalities, from sysbench.opt; a session has it as s.n
--   tables        {{NAME, COLUMNS AND KEYS}, ...}, in the order in which to create them
--   load(fill, n, con)
--                 fills an instance: fill(TABLE, LOW, HIGH, {EXPRESSIONS}, WHICH), where
--                 expressions are of seq, from low to high
--   statements    {NAME = TEXT, ...}
--   begin(s)      when a session begins: for what it keeps
--   interactions  {{NAME, WEIGHT, FUNCTION(s), updates = true or nil, group = NAME or
--                 nil}, ...}; drawn by their whole-numbered weights, unless there is
--   next(s)       returns the name of the interaction that is to come next
function common.workload(w)
   sysbench.cmdline.options = {
      scale = {w.scale, 1},
      instances = {"Number of databases", 1, sysbench.cmdline.ARG_INT},
      name = {"What the databases' names begin with", w.name},
      seed = {"Of what the clients do", 1, sysbench.cmdline.ARG_INT},
      think = {"Milliseconds between the interactions of a client", 0},
      shift = {"Seconds after which other rows become the popular ones; 0: never", 0},
   }
   for name, option in pairs(w.options or {}) do
      sysbench.cmdline.options[name] = option
   end
   local parallel = sysbench.cmdline.PARALLEL_COMMAND
   sysbench.cmdline.commands = {
      prepare = {function () prepare(w) end, parallel},
      cleanup = {cleanup, parallel},
   }

   local kinds, kind_of, total = #w.interactions, {}, 0
   for kind, interaction in ipairs(w.interactions) do
      kind_of[interaction[1]] = kind
      total = total + interaction[2]
   end
   local function drawn()
      local ticket, kind = math.random(total), 0
      repeat
         kind = kind + 1
         ticket = ticket - w.interactions[kind][2]
      until ticket <= 0
      return kind
   end
   local session, counters

   function init()
      check_options()
      local all = ffi.C.calloc(1 + kinds * sysbench.opt.threads,
                               ffi.sizeof("workload_counter"))
      ffi.C.setenv(ADDRESS, string.format("%.0f", tonumber(ffi.cast("intptr_t", all))), 1)
      shared_counters()[0].seconds = now()
   end

   function thread_init()
      math.randomseed(sysbench.opt.seed * 1000003 + sysbench.tid)
      began = shared_counters()[0].seconds
      counters = shared_counters() + 1 + kinds * sysbench.tid
      session = open_session(w)
      if w.begin then
         w.begin(session)
      end
   end

   function thread_done()
      close_session(session)
   end

   function event()
      local kind = w.next and kind_of[w.next(session)] or drawn()
      local start = now()
      w.interactions[kind][3](session)
      counters[kind - 1].count = counters[kind - 1].count + 1
      counters[kind - 1].seconds = counters[kind - 1].seconds + now() - start
   end

   -- In place of sysbench's own loop: the pause lies outside of what is measured, and a
   -- statement that is refused outside of transaction() ends the run.
   function thread_run(thread_id)
      while ffi.C.sb_more_events(thread_id) do
         ffi.C.sb_event_start(thread_id)
         event()
         ffi.C.sb_event_stop(thread_id)
         if sysbench.opt.think > 0 then
            ffi.C.usleep(sysbench.opt.think * 1000)
         end
      end
   end

   function sysbench.hooks.report_cumulative(stat)
      local all, updating, sum = shared_counters() + 1, 0, 0
      local count, seconds, groups, of_group = {}, {}, {}, {}
      for kind = 1, kinds do
         count[kind], seconds[kind] = 0, 0
         for thread = 0, sysbench.opt.threads - 1 do
            local counter = all[thread * kinds + kind - 1]
            count[kind] = count[kind] + counter.count
            seconds[kind] = seconds[kind] + counter.seconds
         end
         sum = sum + count[kind]
         if w.interactions[kind].updates then
            updating = updating + count[kind]
         end
         local group = w.interactions[kind].group
         if group and not of_group[group] then
            groups[#groups + 1], of_group[group] = group, 0
         end
         if group then
            of_group[group] = of_group[group] + count[kind]
         end
      end
      local function share(part)
         return 100 * part / math.max(sum, 1)
      end
      for kind, interaction in ipairs(w.interactions) do
         print(string.format("interaction %s %d share %.2f mean_ms %.3f", interaction[1],
                             count[kind], share(count[kind]),
                             1000 * seconds[kind] / math.max(count[kind], 1)))
      end
      for _, group in ipairs(groups) do
         print(string.format("group %s %d share %.2f", group, of_group[group],
                             share(of_group[group])))
      end
      print(string.format("updating %d share %.2f", updating, share(updating)))
      print(string.format("interactions %d seconds %.3f mean_ms %.3f p95_ms %.3f errors %d",
                          stat.events, stat.time_total, stat.latency_avg * 1000,
                          stat.latency_pct * 1000, stat.errors))
   end
end

return common
