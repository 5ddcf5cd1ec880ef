-- Return the messages of spans, `limit` and `size` bytes at most but one if there is one, and the
-- size of all that were looked at.
local function read_spans(messages, spans, limit, size)
  local found, total, slice = {}, 0, size < math.huge and 10 or 2^31
  for first, stop in string.gmatch(spans, '(%d+)%-(%d*)') do
    first, stop = tonumber(first), math.min(tonumber(stop) or 2^31, redis.call('LLEN', messages))
    for start = first, stop - 1, slice do
      local last = math.min(start + slice, stop) - 1
      for _, message in ipairs(redis.call('LRANGE', messages, start, last)) do
        total = total + #message
        if #found == limit or #found > 0 and total > size then return found, total end
        found[#found + 1] = message
      end
    end
  end
  return found, total
end
