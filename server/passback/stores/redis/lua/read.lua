-- KEYS state messages receipts queue | ARGV first last size whole receipt*
-- `whole` begins at the boundary instead of `first`, and also gives the client's tools and the posts that wait. What is
-- known to be more than `size` bytes is left out then, but for -1; else there is as much as fits, 0 for all.
local SLICE = 10

-- Messages of a range, as many as fit in `size` bytes, but the first in any case; 0 for all of them.
local function range(key, first, last, size)
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

-- Bytes of the messages from `first` to `last`: a record of an older version does not say how many there are.
local function bytes_of(key, first, last)
  local total = 0
  for start = first, last, SLICE do
    local slice = redis.call('LRANGE', key, start, math.min(start + SLICE - 1, last))
    for _, message in ipairs(slice) do total = total + #message end
  end
  return total
end

local version, run, running, expires, owed, count, attempt, seq, committed, mark, cancelled, cut, cancel_on_disconnect, followed_until,
  answer_by, claims, state, boundary, history, open_turns = unpack(
  redis.call('HMGET', KEYS[1], 'version', 'run', 'running', 'expires', 'owed', 'count', 'attempt', 'seq', 'committed',
    'mark', 'cancelled', 'cut', 'cancel_on_disconnect', 'followed_until', 'answer_by',
    'claims', 'state', 'boundary', 'history', 'open_turns'))
if not version then return false end
local lapsed = running == '1' and tonumber(expires) <= now and 1 or 0
local is_cancelled = running == '1' and cancelled == '1' and 1 or 0
local is_overdue = running ~= '1' and answer_by and tonumber(answer_by) <= now and 1 or 0
local is_followed = followed_until and tonumber(followed_until) > now and 1 or 0
local waiting, queued = redis.call('LRANGE', KEYS[4], 0, -1), {}
for i, entry in ipairs(waiting) do queued[i] = string.sub(entry, 1, string.find(entry, '\0', 1, true) - 1) end
local first, last, size, tools, messages = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), false, false
if ARGV[4] == '1' then
  tools = redis.call('HGET', KEYS[1], 'tools')
  history = history or digits(bytes_of(KEYS[2], tonumber(boundary or 0), tonumber(count or 0) - 1))
  if size < 0 or tonumber(history) <= size then messages = range(KEYS[2], tonumber(boundary or 0), last, 0) end
else
  waiting, messages = {}, range(KEYS[2], first, last, size)
end
local receipts = {}
for i = 5, #ARGV do receipts[i - 4] = redis.call('HGET', KEYS[3], ARGV[i]) end
local status = {version, run, running, lapsed, expires, owed, count, attempt, seq, committed, mark, is_cancelled, cut,
  cancel_on_disconnect, is_followed, answer_by, is_overdue, claims, now, state, boundary, history, open_turns, queued}
return {status, messages, tools, waiting, receipts}
