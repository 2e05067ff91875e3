-- Returns what changed in the catalog since a given version.
-- ARGV: the keys of the catalog, its names and its changes, which an ACL may allow to read
-- only; whose numbers, and which one, the reader has.
-- Returns whose numbers these are, the number, whether what follows is all there is, the
-- permissions if they changed, and names with their entries' ids, "" for what is gone.
local AT_ONCE = 1000

local catalog, names, changes = unpack(ARGV, 1, 3)
local state = redis.call("HMGET", catalog, "epoch", "number", "floor", "permitted")
local epoch, number = state[1] or "", tonumber(state[2] or 0)
local known = epoch == ARGV[4] and tonumber(ARGV[5]) or 0
if known == number then return {epoch, number, 0, false, {}} end

-- A number that lies ahead was lost, with a server that failed.
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
