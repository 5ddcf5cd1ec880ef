-- The log of a run: a stream. The id of an entry is the position of its last event; its one field
-- has the number of its events as name, and the record as value.

-- Return the ids of the entries behind a position, and the size of their records.
local function entries_after(log, position)
  local ids, size = {}, 0
  repeat
    local entries = redis.call('XRANGE', log, '(' .. position, '+', 'COUNT', 64)
    for _, entry in ipairs(entries) do
      ids[#ids + 1], size, position = entry[1], size + #entry[2][2], entry[1]
    end
  until #entries < 64
  return ids, size
end

-- Add an entry to a log of so many bytes, and return its size. If that is more than LOG_BYTES, the
-- oldest entries go, but never the newest one. What remains does not begin with the first entry of
-- an epoch: its events are numbered from 1, which would hide the gap from readers.
local function add_entry(log, bytes, id, size, record)
  redis.call('XADD', log, id, size, record)
  local rest, first, kept = bytes + #record, '-', bytes + #record
  if rest <= LOG_BYTES then return rest end
  -- what is too much for one call is left to the next ones
  for _, entry in ipairs(redis.call('XRANGE', log, '-', '+', 'COUNT', 64)) do
    local last = tonumber(string.match(entry[1], '%d+$'))
    if last > tonumber(entry[2][1]) then first, kept = entry[1], rest end
    if kept <= LOG_BYTES then break end
    rest = rest - #entry[2][2]
  end
  if first ~= '-' then redis.call('XTRIM', log, 'MINID', '=', first) end
  return kept
end
