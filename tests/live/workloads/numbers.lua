-- SPDX-License-Identifier: BSD-3-Clause
-- numbers.lua - checks of what common.lua draws and permutes, and of what pages tpcw.lua
-- goes to; run by sysbench, without a database, by the test `numbers'.

package.path = os.getenv("SOURCE_DIR") .. "/bench/workloads/?.lua;" .. package.path
local common = require("common")

local DRAWS = 20000

-- How often each number from low to high comes; none other may.
local function histogram(low, high, draw)
   local times = {}
   for i = low, high do
      times[i] = 0
   end
   for _ = 1, DRAWS do
      local i = draw()
      assert(times[i], "drawn: " .. tostring(i))
      times[i] = times[i] + 1
   end
   return times
end

local function permutations()
   for _, n in ipairs {1, 2, 3, 4, 6, 24, 100, 997, 1000, 4096} do
      local before
      for epoch = 0, 7 do
         common.epoch = function () return epoch end
         local seen, moved, near = {}, 0, 0
         for rank = 0, n - 1 do
            local row = common.row(rank, n)
            assert(row >= 1 and row <= n and row % 1 == 0, "a row outside of the table")
            assert(not seen[row], "two ranks of one row")
            seen[row] = rank
            if before and before[row] ~= rank then
               moved = moved + 1
            end
            if rank > 0 and math.abs(row - common.row(rank - 1, n)) < n / 20 then
               near = near + 1
            end
            local shifted = common.shifted(rank + 1, n)
            assert(epoch > 0 and shifted == row or epoch == 0 and shifted == rank + 1,
                   "shifted() before the first shift, or not after it")
         end
         if n >= 24 then
            assert(not before or moved > n / 2, "a shift that moves little")
            assert(near < n / 2, "neighbouring ranks lie together")
         end
         before = seen
      end
   end
end

local function draws()
   common.epoch = function () return 0 end
   -- Bits of A are set more often: of 1 to 1000, the last ones below 512 most.
   local times = histogram(1, 1000, function () return common.nurand(511, 1, 1000) end)
   assert(times[512] > 3 * DRAWS / 1000, "NURand is uniform")
   assert(times[33] + times[65] + times[129] < DRAWS / 1000, "NURand's few are many")
   -- A of 0 leaves the uniform draw: 4.9 standard deviations.
   for i, n in pairs(histogram(5, 14, function () return common.nurand(0, 5, 14) end)) do
      assert(math.abs(n - DRAWS / 10) < 4.9 * math.sqrt(DRAWS * 0.09), "of " .. i)
   end
   -- The share below x of n is the skew-th root of x / n.
   for _, skew in ipairs {1, 2, 3} do
      local below = 0
      for rank, n in pairs(histogram(0, 99, function () return common.skewed(100, skew) end)) do
         below = below + (rank < 25 and n or 0)
      end
      local share = 0.25 ^ (1 / skew)
      assert(math.abs(below - DRAWS * share) < 4.9 * math.sqrt(DRAWS * share * (1 - share)),
             "skew " .. skew)
   end
end

-- The option --debug takes this name when a command begins; a script is loaded before.
local debug_library = debug

-- Walking TPC-W's pages gives each its share of the shopping mix.
local function shopping()
   local tpcw
   common.workload = function (w) tpcw = w end
   debug = debug_library
   dofile(os.getenv("SOURCE_DIR") .. "/bench/workloads/tpcw.lua")
   for name, value in pairs {scale = 1, items = 0, ebs = 0, recent = 3333, skew = 1} do
      sysbench.opt[name] = value
   end
   local s, times, steps = {n = tpcw.sizes()}, {}, 2000000
   tpcw.begin(s)
   for _ = 1, steps do
      local name = tpcw.next(s)
      times[name] = (times[name] or 0) + 1
   end
   for _, interaction in ipairs(tpcw.interactions) do
      local share = 1e4 * (times[interaction[1]] or 0) / steps
      assert(math.abs(share - interaction[2]) < 2 + 0.0025 * interaction[2],
             string.format("%s: %.1f in 10,000", interaction[1], share))
   end
end

sysbench.cmdline.commands = {
   check = {function ()
      math.randomseed(1)
      permutations()
      draws()
      shopping()
      print("checked")
   end},
}
