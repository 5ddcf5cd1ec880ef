-- park, begin, claim and reap: a change of the transcript, which also takes a lease (begin, claim) or ends one (reap).
-- KEYS state messages receipts runs queue log [due]
-- ARGV kind nonce expected first_version owed tools stay mark pops cancel_on_disconnect state boundary member channel idle busy
--   run lease log_ttl log_bytes last record n message*n (receipt value)*
-- Gives the epoch, or false when the change does not fit.
local kind, nonce, expected, first_version, owed, tools, stay, mark, pops, cancel_on_disconnect, state, boundary =
  unpack(ARGV, 1, 12)
local member, channel, idle, busy, run, lease, log_ttl, log_bytes, last, record, n = unpack(ARGV, 13, 23)
local takes_over = kind == 'take_over' or kind == 'fail_lost'
local runs_on = kind == 'begin' or kind == 'take_over'

local version, seen, running, owner, expires, epoch, drawn, count, attempt, committed, bytes, answer_by,
  read_from, history = unpack(
  redis.call('HMGET', keys.state, 'version', 'nonce', 'running', 'run', 'expires', 'epoch', 'drawn', 'count',
    'attempt', 'committed', 'bytes', 'answer_by', 'boundary', 'history'))
epoch, count, bytes, read_from = tonumber(epoch or 0), tonumber(count or 0), tonumber(bytes or 0), tonumber(read_from or 0)
if seen == nonce then return epoch end
if tonumber(version or 0) ~= tonumber(expected) then return false end
if takes_over then
  if running ~= '1' or owner ~= run or tonumber(expires) > now then return false end
elseif running == '1' then
  return false
end
if kind ~= 'begin' then pops = '' end
if pops ~= '' then
  local first = redis.call('LINDEX', keys.queue, 0)
  if not first or not is_of(first, pops) then return false end
end
check_parts(version and count)

-- Entries of the log behind a position: their ids, and the size of their records.
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
local void, gap = {}, false
if takes_over then
  local freed
  void, freed = entries_after(committed)
  gap = redis.call('XLEN', keys.log) == #void  -- what was committed has been trimmed
  bytes = gap and #GAP or bytes - freed
elseif kind == 'begin' then
  bytes = pops == '' and 0 or select(2, entries_after('0-0'))
end
local size = bytes + #record
local kept = stay == '' and count or math.min(count, tonumber(stay))
local reads = state ~= '' and tonumber(boundary) or (read_from > kept and 0 or read_from)
local follows = kept == count and reads == read_from
history = history_bytes(follows and history, reads, kept, 24, 23 + n)
-- nothing above this line writes

-- The state comes first: a server without memory refuses it, but would let pass all that follows another write.
local fields = {}
local function set(...)
  for _, value in ipairs({...}) do fields[#fields + 1] = value end
end
if kind ~= 'park' then
  epoch = tonumber(drawn or 0) + 1
  -- what appends read comes first: a small hash is looked through from its beginning
  set('fence', epoch .. ':' .. nonce, 'running', runs_on and '1' or '0', 'seq', last, 'bytes', digits(size),
    'expires', digits(now + lease), 'epoch', digits(epoch), 'step', '-1', 'committed', epoch .. '-' .. last,
    'open_turns', '', 'drawn', digits(epoch), 'released', '')
end
if kind == 'begin' then
  set('cancelled', '0', 'run', run, 'attempt', '1', 'mark', mark, 'cancel_on_disconnect', cancel_on_disconnect, 'cut', '0', 'followed_until', '0')
elseif kind == 'take_over' then
  set('attempt', digits(attempt + 1))
end
set('version', digits((version or first_version - 1) + 1), 'nonce', nonce, 'owed', owed, 'count', digits(kept + n))
if tools ~= '' then set('tools', tools) end
if state ~= '' then
  set('state', state, 'boundary', boundary)
elseif reads ~= read_from then
  set('boundary', '0')
end
set('history', digits(history))
redis.call('HSET', keys.state, unpack(fields))
if answer_by and kind == 'begin' then redis.call('HDEL', keys.state, 'answer_by') end

if not version then
  redis.call('DEL', keys.messages, keys.receipts, keys.runs, keys.queue)  -- what an eviction may have left over
end
if pops ~= '' then redis.call('LPOP', keys.queue) end
if kept < count then
  if kept == 0 then redis.call('DEL', keys.messages) else redis.call('LTRIM', keys.messages, 0, kept - 1) end
end
local messages_end = 23 + n
for i = 24, messages_end do redis.call('RPUSH', keys.messages, ARGV[i]) end
for i = messages_end + 1, #ARGV, 2 do redis.call('HSET', keys.receipts, ARGV[i], ARGV[i + 1]) end
if kind ~= 'park' then
  for i = 1, #void, 500 do redis.call('XDEL', keys.log, unpack(void, i, math.min(i + 499, #void))) end
  if gap then
    -- an entry of no events in the place of the last one that was committed: its number shows readers the gap
    redis.call('DEL', keys.log)
    redis.call('XADD', keys.log, committed, 'events', GAP)
  end
  if record ~= '' then
    local rest = add_entry(keys.log, epoch .. '-' .. last, record, bytes, tonumber(log_bytes))
    if rest ~= size then redis.call('HSET', keys.state, 'bytes', digits(rest)) end
  end
  keep_log(run, log_ttl)
end
local waits = not runs_on and posts_wait()
if kind ~= 'park' then look(member, runs_on and lease or (waits and 0)) end
keep((runs_on or waits) and busy or idle)
if kind ~= 'begin' or pops ~= '' then redis.call('PUBLISH', channel, '') end  -- nobody can wait for a run that is new
return epoch
