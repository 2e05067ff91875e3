-- Returns the changes of the catalog since a given number.
-- ARGV: the keys of the catalog, its names and its changes, which an ACL may allow to read
-- only; the epoch and the number that the reader has.
-- Returns the epoch, the number, whether all names follow, the permissions if they changed, and
-- names with their entries' ids, "" for removed ones.
local AT_ONCE = 1000

local catalog, names, changes = unpack(ARGV, 1, 3)
local state = redis.call("HMGET", catalog, "epoch", "number", "floor", "permitted")
local epoch, number = state[1] or "", tonumber(state[2] or 0)
local known = epoch == ARGV[4] and tonumber(ARGV[5]) or 0
if known == number then return {epoch, number, 0, false, {}} end

-- A server that failed may have lost the number that the reader has.
local is_all = known == 0 or known > number or known < tonumber(state[3] or 0)
local permissions = false
if is_all or tonumber(state[4] or 0) > known then
  permissions = redis.call("HGET", catalog, "permissions")
end

local found = {}
if is_all then
  local served = redis.call("HGETALL", names)
  for i = 1, #served, 2 do
    found[i], found[i + 1] = served[i], string.sub(served[i + 1], 1, 64)
  end
else
  local changed = redis.call("ZRANGEBYSCORE", changes, "(" .. known, "+inf")
  for first = 1, #changed, AT_ONCE do
    local last = math.min(first + AT_ONCE - 1, #changed)
    local values = redis.call("HMGET", names, unpack(changed, first, last))
    for i, value in ipairs(values) do
      found[#found + 1] = changed[first + i - 1]
      found[#found + 1] = value and string.sub(value, 1, 64) or ""
    end
  end
end
return {epoch, number, is_all and 1 or 0, permissions, found}
