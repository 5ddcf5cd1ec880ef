-- The log of a run: a stream whose entries have the ids of their last events.
local SLICE, SLICES = 8, 8  -- entries that a trimming looks at: at a time, and how many times

-- Return whether an entry of these events follows on the last one that is here, or was here
-- before. If not, what its writer wrote before was lost in a failover, and what he does next rests
-- on it.
local function follows_log(seq, first, last)
  return tonumber(first) == seq + 1 or tonumber(last) <= tonumber(seq)
end

-- Remove the oldest entries until the records fit in `limit` bytes, but never the newest one. What
-- remains does not begin with the first entry of an epoch, unless nothing goes: its number is 1,
-- which would hide the gap from readers.
-- Return the size of what remains; what is too much for one call is left to the next ones.
local function trim_log(log, bytes, limit)
  local rest, first, first_rest, previous, start = bytes, false, bytes, false, '-'
  for _ = 1, SLICES do
    local entries = redis.call('XRANGE', log, start, '+', 'COUNT', SLICE)
    for _, entry in ipairs(entries) do
      local epoch = string.match(entry[1], '^%d+')
      if epoch == previous then first, first_rest = entry[1], rest end
      if first and first_rest <= limit then break end
      previous, rest = epoch, rest - #entry[2][2]
    end
    if #entries < SLICE or (first and first_rest <= limit) then break end
    start = '(' .. entries[#entries][1]
  end
  if first then redis.call('XTRIM', log, 'MINID', '=', first) end
  return first_rest
end

-- Add an entry and return the size of the log's records, this one included.
local function add_entry(log, id, record, bytes, limit)
  redis.call('XADD', log, id, 'events', record)
  bytes = bytes + #record
  return bytes > limit and trim_log(log, bytes, limit) or bytes
end
