-- Read a conversation.
-- KEYS state messages receipts queue | ARGV first last size whole receipt*
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

local version, run_id, running, lease_expires, owed, message_count, attempt, seq, committed,
  run_start, cancelled, stopped_early, cancel_on_disconnect, followed_until, answer_by, claims,
  state, history_start, history_bytes, open_turns = unpack(
  redis.call('HMGET', KEYS[1], 'version', 'run_id', 'running', 'lease_expires', 'owed',
    'message_count', 'attempt', 'seq', 'committed', 'run_start', 'cancelled', 'stopped_early',
    'cancel_on_disconnect', 'followed_until', 'answer_by', 'claims', 'state', 'history_start',
    'history_bytes', 'open_turns'))
if not version then return false end
local lapsed = running == '1' and tonumber(lease_expires) <= now and 1 or 0
local is_cancelled = running == '1' and cancelled == '1' and 1 or 0
local is_overdue = running ~= '1' and answer_by and tonumber(answer_by) <= now and 1 or 0
local is_followed = followed_until and tonumber(followed_until) > now and 1 or 0
local waiting, run_ids = redis.call('LRANGE', KEYS[4], 0, -1), {}
for i, entry in ipairs(waiting) do
  run_ids[i] = string.sub(entry, 1, string.find(entry, '\0', 1, true) - 1)
end
local first, last, size = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local tools, messages = false, false
if ARGV[4] == '1' then
  tools = redis.call('HGET', KEYS[1], 'tools')
  if size < 0 or tonumber(history_bytes) <= size then
    messages = read_range(KEYS[2], tonumber(history_start or 0), last, 0)
  end
else
  waiting, messages = {}, read_range(KEYS[2], first, last, size)
end
local receipts = {}
for i = 5, #ARGV do receipts[i - 4] = redis.call('HGET', KEYS[3], ARGV[i]) end
local status = {version, run_id, running, lapsed, lease_expires, owed, message_count, attempt, seq,
  committed, run_start, is_cancelled, stopped_early, cancel_on_disconnect, is_followed, answer_by,
  is_overdue, claims, now, state, history_start, history_bytes, open_turns, run_ids}
return {status, messages, tools, waiting, receipts}
