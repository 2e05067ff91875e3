-- The catalog of the fleet, for its publishers. ARGV[1]: the action.
-- KEYS: 1 catalog, 2 names, 3 changes, 4 publishers, 5 announcements, 6 the publisher's own.
--
-- A publisher's own hash has, by name, the id of an entry and the number that changed it;
-- and under "" the stamp of its last publication. `names` has, by name, the id of the entry
-- that is served and the key prefix of its pool's publishers. The pool that has a name keeps it
-- as long as one of its publishers has it; within a pool the latest change counts.
local ID = 64
local KEPT = 24 * 3600 * 1000   -- after the last heartbeat of the fleet
local LAPSE = 5 * 60 * 1000     -- without a heartbeat, while others of its pool had one
local MOST_REMOVED = 10000      -- removed names that are remembered

local catalog, names, changes, publishers, announcements, own = unpack(KEYS)
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local number

local function next_number()
  if not number then
    redis.call("HSETNX", catalog, "epoch", time[1] .. "." .. time[2])
    number = redis.call("HINCRBY", catalog, "number", 1)
  end
  return number
end

local function pool_of(publisher)
  return string.match(publisher, "^(.*:)[^:]*$")
end

local function serve(name, value)
  if redis.call("HGET", names, name) == value then return end
  if value then
    redis.call("HSET", names, name, value)
  else
    redis.call("HDEL", names, name)
  end
  redis.call("ZADD", changes, next_number(), name)
end

-- Chooses the publisher of a name that another one has withdrawn.
local function elect(name)
  local served = redis.call("HGET", names, name)
  local holder = served and string.sub(served, ID + 1)
  local best, best_number, is_held
  for _, publisher in ipairs(redis.call("ZRANGE", publishers, 0, -1)) do
    local kept = redis.call("HGET", publisher, name)
    if kept then
      local pool = pool_of(publisher)
      local value, at = string.sub(kept, 1, ID) .. pool, tonumber(string.sub(kept, ID + 1))
      if value == served then return end
      local same = pool == holder
      if not best or (same and not is_held) or (same == is_held and at > best_number) then
        best, best_number, is_held = value, at, same
      end
    end
  end
  serve(name, best)
end

local function forget(publisher)
  local had = redis.call("HKEYS", publisher)
  redis.call("DEL", publisher)
  redis.call("ZREM", publishers, publisher)
  for _, name in ipairs(had) do
    if name ~= "" then elect(name) end
  end
end

-- Removes publishers without a heartbeat, earlier if others of their pool are alive.
local function sweep()
  for _, publisher in ipairs(redis.call("ZRANGEBYSCORE", publishers, "-inf", now - LAPSE)) do
    local heard = tonumber(redis.call("ZSCORE", publishers, publisher))
    if heard < now - KEPT or pool_of(publisher) == pool_of(own) then forget(publisher) end
  end
end

local function forget_removed()
  local removed = redis.call("ZCARD", changes) - redis.call("HLEN", names)
  if removed <= MOST_REMOVED then return end
  for _, name in ipairs(redis.call("ZRANGE", changes, 0, -1)) do
    if redis.call("HEXISTS", names, name) == 0 then
      redis.call("HSET", catalog, "floor", redis.call("ZSCORE", changes, name))
      redis.call("ZREM", changes, name)
      removed = removed - 1
      if removed <= MOST_REMOVED / 2 then return end
    end
  end
end

-- Registers the publisher, and announces changes.
local function close()
  redis.call("ZADD", publishers, now, own)
  sweep()
  if number then
    forget_removed()
    redis.call("XADD", announcements, "MAXLEN", "~", 100, "*", "kind", "catalog")
  end
  for _, key in ipairs({catalog, names, changes, publishers, announcements}) do
    redis.call("PEXPIRE", key, KEPT)
  end
  -- Longer than the others: the sweep reads the names that it had.
  redis.call("PEXPIRE", own, 2 * KEPT)
  return tonumber(redis.call("HGET", catalog, "number") or 0)
end

local acts = {}

-- Returns whether the publisher has verified everything that it would replace.
local function is_verified(pool)
  local permissions = redis.call("HGET", catalog, "permissions")
  if ARGV[4] ~= "" and permissions and permissions ~= ARGV[4] then
    if redis.sha1hex(permissions) ~= ARGV[5] then return false end
  end
  for i = 6, #ARGV, 3 do
    local served = ARGV[i + 1] ~= "" and redis.call("HGET", names, ARGV[i])
    if served and string.sub(served, ID + 1) == pool then
      local id = string.sub(served, 1, ID)
      if id ~= ARGV[i + 1] and id ~= ARGV[i + 2] then return false end
    end
  end
  return true
end

-- ARGV: the stamp of the last publication, or ""; the next one; permissions, or ""; the SHA-1 of
-- the published permissions that the publisher has verified; then names, the ids of their
-- entries, "" for removed ones, and the ids that the publisher has verified and may replace.
-- Returns the number of the catalog and the stamp, which changes with the names only; nil if the
-- last publication has another stamp, or an unverified entry would be replaced.
function acts.publish()
  local stamp = redis.call("HGET", own, "") or ""
  local pool = pool_of(own)
  if stamp ~= ARGV[2] or not is_verified(pool) then return nil end
  if stamp == "" or #ARGV > 5 then
    stamp = ARGV[3]
    redis.call("HSET", own, "", stamp)
  end
  for i = 6, #ARGV, 3 do
    local name, id = ARGV[i], ARGV[i + 1]
    if id == "" then
      if redis.call("HDEL", own, name) == 1 then elect(name) end
    else
      local served = redis.call("HGET", names, name)
      if not served or string.sub(served, ID + 1) == pool then serve(name, id .. pool) end
      redis.call("HSET", own, name, id .. (number or redis.call("HGET", catalog, "number") or 0))
    end
  end
  if ARGV[4] ~= "" and redis.call("HGET", catalog, "permissions") ~= ARGV[4] then
    redis.call("HSET", catalog, "permissions", ARGV[4], "permitted", next_number())
  end
  return {close(), stamp}
end

-- ARGV: the stamp of the last publication. Returns the number; nil for another stamp.
function acts.refresh()
  if redis.call("HGET", own, "") ~= ARGV[2] then return nil end
  return close()
end

-- Removes the publisher. Returns the number.
function acts.withdraw()
  forget(own)
  if number then redis.call("XADD", announcements, "MAXLEN", "~", 100, "*", "kind", "catalog") end
  return tonumber(redis.call("HGET", catalog, "number") or 0)
end

return acts[ARGV[1]]()
