-- Read a conversation.
-- KEYS state messages receipts queue | ARGV first last size whole receipt*
-- Return the STATUS_FIELDS, the runs of the queue and the time, then what was asked for; false if
-- there is no such conversation.
-- `whole`: begin at `history_start` instead of `first`, and read the client's tools and the queue
-- too. Messages of more than `size` bytes are left out then; -1 reads them all. Otherwise read as
-- many as fit in `size`; 0 reads them all.
local SLICE = 10

-- Return messages of a range, as many as fit in `size` bytes, but the first in any case; 0 for all.
local function read_range(key, first, last, size)
  if size == 0 then return redis.call('LRANGE', key, first, last) end
  local found, total = {}, 0
  for start = first, last, SLICE do
    local slice = redis.call('LRANGE', key, start, math.min(start + SLICE - 1, last))
    for _, message in ipairs(slice) do
      total = total + #message
      if #found > 0 and total > size then return found end
      found[#found + 1] = message
    end
    if #slice < SLICE then break end
  end
  return found
end

local fields = redis.call('HMGET', KEYS[1], unpack(STATUS_FIELDS))
if not fields[1] then return false end
local waiting, run_ids = redis.call('LRANGE', KEYS[4], 0, -1), {}
for i, entry in ipairs(waiting) do
  run_ids[i] = string.sub(entry, 1, string.find(entry, '\0', 1, true) - 1)
end
local first, last, size = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tools, messages = false, false
if ARGV[4] == '1' then
  local history_start, history_bytes
  tools, history_start, history_bytes = unpack(
    redis.call('HMGET', KEYS[1], 'tools', 'history_start', 'history_bytes'))
  if size < 0 or tonumber(history_bytes) <= size then
    messages = read_range(KEYS[2], tonumber(history_start or 0), last, 0)
  end
else
  waiting, messages = {}, read_range(KEYS[2], first, last, size)
end
local receipts = {}
for i = 5, #ARGV do receipts[i - 4] = redis.call('HGET', KEYS[3], ARGV[i]) end
return {fields, run_ids, now, messages, tools, waiting, receipts}
