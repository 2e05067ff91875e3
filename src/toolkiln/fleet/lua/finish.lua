-- Ends calls and notifies their callers; of several ends of one call the first counts.
-- KEYS: the stream, the stream of dead letters, then each call's record.
-- ARGV: the group, how long a reply stream is kept, and its length, how long a reply is kept if
-- `remember.lua` requested that; then for each call its entry, the reply, how long the end is
-- kept, "1" if the reply is remembered or "2" if until the id is used again, the reply stream if
-- the record is gone, the reason for a dead letter or "", the key of its envelope or "", and a key
-- and the reply if that is too large for an entry, or "" and "".
-- Returns 1 or 0 for each.
-- XACK is the first write: it needs no memory, and if the first write needs none, Redis rejects
-- none of the others. Keys that others may have damaged are used with pcall, so that one of them
-- does not stop the other calls from ending.
local stream, dead, group = KEYS[1], KEYS[2], ARGV[1]
local kept, most, later = ARGV[2], ARGV[3], ARGV[4]
local HEAD, EACH = 4, 9
local MOST_DEAD, MOST_FIELDS, MOST_ASKERS = 1000, 8, 100
local MOST_BYTES = 256 * 1024  -- of a field: no entry of ours has more

local replies, order, ended, answers = {}, {}, {}, {}

-- Clients write the names in a record: use them only if they are names of reply streams.
local function notify(askers, reply)
  local count = 0
  for asker in string.gmatch(askers, "toolkiln:replies:%S+") do
    count = count + 1
    if count > MOST_ASKERS then return end
    if not replies[asker] then
      replies[asker] = {}
      order[#order + 1] = asker
    end
    table.insert(replies[asker], reply)
  end
end

-- Several packed replies form one array of msgpack.
local function packed(list)
  return string.char(0xdc, math.floor(#list / 256), #list % 256) .. table.concat(list)
end

local function bury(entry, why)
  local found, letter = redis.call("XRANGE", stream, entry, entry)[1], {"why", why}
  local fields = found and found[2] or {}
  for i = 1, math.min(#fields, 2 * MOST_FIELDS) do
    letter[#letter + 1] = #fields[i] <= MOST_BYTES and fields[i] or ""
  end
  redis.pcall("XADD", dead, "MAXLEN", "~", MOST_DEAD, "*", unpack(letter))
end

for i = 1, #KEYS - 2 do
  local record = KEYS[i + 2]
  local at = HEAD + (i - 1) * EACH
  local entry, reply, known_for = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local remembered, asker, why = ARGV[at + 4], ARGV[at + 5], ARGV[at + 6]
  local call_key, body_key, body = ARGV[at + 7], ARGV[at + 8], ARGV[at + 9]

  answers[i] = redis.call("XACK", stream, group, entry)
  if answers[i] == 1 then
    ended[#ended + 1] = entry
    if why ~= "" then bury(entry, why) end
    if call_key ~= "" then redis.call("DEL", call_key) end
    local askers, print, current = unpack(redis.pcall("HMGET", record, "askers", "print", "entry"))
    if current and current ~= entry then
      -- A copied entry, whose end does not end the call.
      answers[i] = 0
    else
      if known_for ~= "0" and print and print ~= "" then
        remembered, known_for = remembered == "2" and "2" or "1", later
      end
      if body_key ~= "" then redis.call("SET", body_key, body, "PX", math.max(known_for, kept)) end
      if askers then
        redis.call("HSET", record, "state", remembered == "2" and "open" or "done")
        if remembered ~= "0" then redis.call("HSET", record, "reply", reply) end
        redis.call("PEXPIRE", record, known_for)  -- 0 deletes it
      end
      notify(askers or asker, reply)
    end
  end
end

if #ended > 0 then redis.call("XDEL", stream, unpack(ended)) end
for _, asker in ipairs(order) do
  redis.pcall("XADD", asker, "MAXLEN", "~", most, "*", "replies", packed(replies[asker]))
  redis.call("PEXPIRE", asker, kept)
end
return answers
