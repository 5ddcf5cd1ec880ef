-- Change the transcript, for park, begin, take_over and fail_lost; begin and take_over also take
-- a lease, fail_lost ends one.
-- KEYS state messages receipts runs queue log [due list]
-- ARGV kind nonce expected first_version owed tools keep_messages run_start dequeues
--   cancel_on_disconnect state history_start title named settings member channel idle_ttl
--   running_ttl list_member list_ttl run_id lease log_ttl max_log_bytes last record n message*n
--   (receipt value)*
-- Return the epoch, or false when the change does not fit.
local FIRST_MESSAGE = 29  -- its place in ARGV
local kind, nonce, expected, first_version, owed, tools, keep_messages, run_start, dequeues,
  cancel_on_disconnect, state, history_start, title, named, settings = unpack(ARGV, 1, 15)
local member, channel, idle_ttl, running_ttl, list_member, list_ttl, run_id, lease, log_ttl,
  max_log_bytes, last, record, n = unpack(ARGV, 16, 28)
local takes_over = kind == 'take_over' or kind == 'fail_lost'
local takes_lease = kind == 'begin' or kind == 'take_over'

local version, known_nonce, running, known_run_id, lease_expires, epoch, newest_epoch,
  message_count, attempt, committed, log_bytes, answer_by, known_start, history_bytes,
  known_title = unpack(
  redis.call('HMGET', keys.state, 'version', 'nonce', 'running', 'run_id', 'lease_expires', 'epoch',
    'newest_epoch', 'message_count', 'attempt', 'committed', 'log_bytes', 'answer_by',
    'history_start', 'history_bytes', 'title'))
epoch, message_count = tonumber(epoch or 0), tonumber(message_count or 0)
log_bytes, known_start = tonumber(log_bytes or 0), tonumber(known_start or 0)
if known_nonce == nonce then return epoch end
if tonumber(version or 0) ~= tonumber(expected) then return false end
if takes_over then
  if running ~= '1' or known_run_id ~= run_id then return false end
  if tonumber(lease_expires) > now then return false end
elseif running == '1' then
  return false
end
if kind ~= 'begin' then dequeues = '' end
if dequeues ~= '' then
  local first = redis.call('LINDEX', keys.queue, 0)
  if not first or not is_entry_of(first, dequeues) then return false end
end
check_parts(version and message_count)

-- Return the ids of the log's entries behind a position, and the size of their records.
local function entries_after(position)
  local ids, size = {}, 0
  repeat
    local entries = redis.call('XRANGE', keys.log, '(' .. position, '+', 'COUNT', 64)
    for _, entry in ipairs(entries) do
      ids[#ids + 1], size, position = entry[1], size + #entry[2][2], entry[1]
    end
  until #entries < 64
  return ids, size
end

local GAP = '[]'
local uncommitted, has_gap = {}, false
if takes_over then
  local freed
  uncommitted, freed = entries_after(committed)
  has_gap = redis.call('XLEN', keys.log) == #uncommitted  -- what was committed has been trimmed
  log_bytes = has_gap and #GAP or log_bytes - freed
elseif kind == 'begin' then
  -- a run of the queue has a log already
  log_bytes = dequeues == '' and 0 or select(2, entries_after('0-0'))
end
local new_log_bytes = log_bytes + #record
local kept = message_count
if keep_messages ~= '' then kept = math.min(message_count, tonumber(keep_messages)) end
local new_start = tonumber(history_start)
if state == '' then new_start = known_start > kept and 0 or known_start end
local adds_only = kept == message_count and new_start == known_start
history_bytes = count_history_bytes(
  adds_only and history_bytes, new_start, kept, FIRST_MESSAGE, FIRST_MESSAGE - 1 + n)
-- nothing above this line writes

-- The state is written first: a server without memory refuses a script's first write, but lets
-- pass all that follow another write.
local fields = {}
local function set(...)
  for _, value in ipairs({...}) do fields[#fields + 1] = value end
end
if kind ~= 'park' then
  epoch = tonumber(newest_epoch or 0) + 1
  -- what appends read comes first: Redis looks through a small hash from its beginning
  set('fence', epoch .. ':' .. nonce, 'running', takes_lease and '1' or '0', 'seq', last,
    'log_bytes', digits(new_log_bytes), 'lease_expires', digits(now + lease),
    'epoch', digits(epoch), 'step', '-1', 'committed', epoch .. '-' .. last,
    'open_turns', '', 'newest_epoch', digits(epoch), 'released_fence', '')
end
if kind == 'begin' then
  set('cancelled', '0', 'run_id', run_id, 'attempt', '1', 'run_start', run_start,
    'cancel_on_disconnect', cancel_on_disconnect, 'stopped_early', '0', 'followed_until', '0')
elseif kind == 'take_over' then
  set('attempt', digits(attempt + 1))
end
set('version', digits((version or first_version - 1) + 1), 'nonce', nonce, 'owed', owed,
  'message_count', digits(kept + n))
if not takes_over then set('updated', microseconds()) end
if not version then set('created', microseconds(), 'layout', LAYOUT) end
if title ~= '' and (known_title or '') == '' then
  set('title', title, 'named', named)
end
if tools ~= '' then set('tools', tools) end
if settings ~= '' then set('settings', settings) end
if state ~= '' then
  set('state', state, 'history_start', history_start)
elseif new_start ~= known_start then
  set('history_start', '0')
end
set('history_bytes', digits(history_bytes))
redis.call('HSET', keys.state, unpack(fields))
if answer_by and kind == 'begin' then redis.call('HDEL', keys.state, 'answer_by') end

if not version then
  -- what an eviction may have left over
  redis.call('DEL', keys.messages, keys.receipts, keys.runs, keys.queue)
end
if dequeues ~= '' then redis.call('LPOP', keys.queue) end
if kept == 0 and message_count > 0 then
  redis.call('DEL', keys.messages)
elseif kept < message_count then
  redis.call('LTRIM', keys.messages, 0, kept - 1)
end
local first_receipt = FIRST_MESSAGE + n
for i = FIRST_MESSAGE, first_receipt - 1 do redis.call('RPUSH', keys.messages, ARGV[i]) end
for i = first_receipt, #ARGV, 2 do redis.call('HSET', keys.receipts, ARGV[i], ARGV[i + 1]) end
if kind ~= 'park' then
  for i = 1, #uncommitted, 500 do  -- `unpack` has room for some thousands
    redis.call('XDEL', keys.log, unpack(uncommitted, i, math.min(i + 499, #uncommitted)))
  end
  if has_gap then
    -- an entry of no events in the place of the last one that was committed: its number shows
    -- readers the gap
    redis.call('DEL', keys.log)
    redis.call('XADD', keys.log, committed, 'events', GAP)
  end
  if record ~= '' then
    local id = epoch .. '-' .. last
    local rest = add_entry(keys.log, id, record, log_bytes, tonumber(max_log_bytes))
    if rest ~= new_log_bytes then redis.call('HSET', keys.state, 'log_bytes', digits(rest)) end
  end
  set_log_ttl(run_id, log_ttl)
end
local waits = not takes_lease and has_queue()
if keys.list and not takes_over then list_conversation(keys.list, list_member, list_ttl) end
if kind ~= 'park' then set_due(member, takes_lease and lease or (waits and 0)) end
set_ttl((takes_lease or waits) and running_ttl or idle_ttl)
redis.call('PUBLISH', channel, '')
return epoch
