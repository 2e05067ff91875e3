-- Extends the expiry of documents. KEYS: the documents. ARGV: milliseconds from now.
-- Returns the indexes of missing ones, from 1.
local missing = {}
for i, key in ipairs(KEYS) do
  if redis.call("PEXPIRE", key, ARGV[1]) == 0 then missing[#missing + 1] = i end
end
return missing
