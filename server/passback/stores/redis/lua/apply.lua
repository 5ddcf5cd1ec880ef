-- Apply a write to a conversation if its guard holds.
-- KEYS state messages log logs [due all owing]: indexes that may change, if this server has them
-- ARGV first_message first_removed first_field (name value)* message* removed* (field value)*: the
--   first three are places in ARGV; `removed` and `field` are names of fields of the state
-- Return version, time, and 1 if anything is queued; false if the guard does not hold.
local state, messages, log, logs, due_index, all_index, owing_index = unpack(KEYS)
local first_message, first_removed, first_field = ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0
local given = {}
for i = 4, first_message - 1, 2 do given[ARGV[i]] = ARGV[i + 1] end
local version, writes, count, view, view_bytes, queue, due, owes, fence, expires, seq, log_bytes =
  unpack(redis.call('HMGET', state, 'version', 'writes', 'count', 'view', 'view_bytes', 'queue',
    'due', 'owes', 'fence', 'expires', 'seq', 'log_bytes'))
if not version then
  writes, count, view, view_bytes, queue, due, owes = '', 0, '0-', 0, '\n', '', ''
  fence, expires, seq, log_bytes = '', '', 0, ''
elseif string.find(writes, given.id, 1, true) then
  return {version, now, queue ~= '\n' and 1 or 0}
end
count, seq = tonumber(count), tonumber(seq)
local lease, last = given.lease, tonumber(given.last)
local in_lease = given.fence and lease ~= 'take'  -- the log that changes is that of the lease
if (given.version or version) ~= (version or '0')
  or given.fence and (fence == '' or given.fence ~= fence)
  or given.lease_over and (expires == '' or tonumber(expires) > now)
  or given.count and tonumber(given.count) ~= count
  or in_lease and last and last > seq and last - given.size ~= seq then
  return false
end
if version and redis.call('LLEN', messages) ~= count then
  error('PBDAMAGED the messages do not fit the state')
end

local voided, freed, has_gap, bytes = {}, 0, false, in_lease and tonumber(log_bytes)
local adds = given.record and (not in_lease or last > seq)
-- a log that is there all the same is that of a conversation that has expired, or was evicted
local is_new = given.run and (not version or not (in_lease or given.void_after)
  and not redis.call('ZSCORE', logs, given.run))
if is_new then bytes = 0 elseif given.run then
  bytes = bytes or select(2, entries_after(log, '0-0'))
end
if given.void_after then
  voided, freed = entries_after(log, given.void_after)
  has_gap = #voided == redis.call('XLEN', log) and given.void_after ~= '0-0'
  bytes = has_gap and #GAP or bytes - freed
elseif adds and not is_new and not in_lease then
  adds = #redis.call('XRANGE', log, given.entry, '+', 'COUNT', 1) == 0
end
local first, stop = string.find(queue, '\n' .. (given.enqueue or '') .. '\n', 1, true)
if given.enqueue and not first then queue = queue .. given.enqueue .. '\n' end
first, stop = string.find(queue, '\n' .. (given.dequeue or '') .. '\n', 1, true)
if first then queue = string.sub(queue, 1, first) .. string.sub(queue, stop + 1) end
if in_lease and last then seq = math.max(seq, last) end
local moves = given.due or lease  -- it may be due at another time
if lease == 'take' then
  fence, expires, seq = given.new_fence, digits(now + given.milliseconds), last or 0
elseif lease and expires ~= '' then
  if lease ~= 'renew' then fence = '' end
  -- a lease that lasts longer is found in the index too early, and put off
  moves = given.due or lease ~= 'renew' or now + given.milliseconds < tonumber(expires)
  expires = digits(fence == '' and now or now + given.milliseconds)
  if lease == 'end' then expires = '' end
end
if given.due then
  local queued = queue ~= '\n' and tonumber(given.due_queued) or math.huge
  local after = math.min(tonumber(given.due) or math.huge, queued)
  due = after < math.huge and digits(now + after) or ''
end
local begins_to_owe, settles = given.owes == '1' and owes == '', given.owes == '0' and owes ~= ''
if begins_to_owe then owes = microseconds() elseif settles then owes = '' end
due_index, all_index = moves and due_index, given.touches and all_index
owing_index = (begins_to_owe or settles) and owing_index
for _, index in ipairs({due_index or false, all_index or false, owing_index or false}) do
  if index then redis.call('ZCARD', index) end  -- a foreign type is an error
end
-- nothing above this line writes

-- what a full server or a foreign key refuses is refused before the conversation is changed
if given.run and (log_bytes == '' or not in_lease or given.ends or given.void_after) then
  redis.call('ZADD', logs, given.ends and digits(now + IDLE_LOG) or 'inf', given.run)
  redis.call('ZREMRANGEBYSCORE', logs, '-inf', digits(now))
end
if is_new or has_gap then redis.call('DEL', log) end
-- an entry without events in the place of the last one that stays: readers see the gap
if has_gap then redis.call('XADD', log, given.void_after, '0', GAP) end
for _, id in ipairs(has_gap and {} or voided) do redis.call('XDEL', log, id) end
if adds then
  bytes = add_entry(log, bytes, given.entry, given.size, given.record)
elseif given.run and redis.call('EXISTS', log) == 0 then
  redis.call('XADD', log, 'MAXLEN', 0, '0-1', '0', GAP)
end
if lease == 'take' or given.run and in_lease then log_bytes = bytes and digits(bytes) or '' end
local fields = {
  'version', digits((version or given.first_version - 1) + 1),
  'writes', given.id .. string.sub(writes, 1, WRITES_SIZE - #given.id), 'queue', queue, 'due', due,
  'owes', owes, 'fence', fence, 'expires', expires, 'seq', digits(seq), 'log_bytes', log_bytes,
}
local function set(name, value) fields[#fields + 1], fields[#fields + 2] = name, value end
if given.bytes or not version then
  if string.sub(view, -1) == '-' then view_bytes = view_bytes + (given.bytes or 0) end
  set('view_bytes', digits(view_bytes))
  set('count', digits(count + first_removed - first_message))
end
if given.signal then set('signal', given.signal) end  -- a lease sets it when it is taken
if given.touches then set('updated', microseconds()) end
if not version then set('created', microseconds()) end
for i = first_field, #ARGV do fields[#fields + 1] = ARGV[i] end
for i = 1, #fields, 1000 do  -- `unpack` has room for some thousands
  redis.call('HSET', state, unpack(fields, i, math.min(i + 999, #fields)))
end
for i = first_removed, first_field - 1 do redis.call('HDEL', state, ARGV[i]) end
if given.run then redis.call('PEXPIRE', log, given.ends and IDLE_LOG or RUNNING_LOG) end
if not version then redis.call('DEL', messages) end
for i = first_message, first_removed - 1 do redis.call('RPUSH', messages, ARGV[i]) end
if given.count_view then
  local _, total = read_spans(messages, given.count_view, math.huge, math.huge)
  redis.call('HSET', state, 'view_bytes', digits(total))
end
local at = expires ~= '' and expires or due
if due_index and at ~= '' then redis.call('ZADD', due_index, due_score(at), given.key) end
if due_index and at == '' then redis.call('ZREM', due_index, given.key) end
if all_index then add_to_index(all_index, given.member) end
if owing_index and begins_to_owe then add_to_index(owing_index, given.member) end
if owing_index and settles then redis.call('ZREM', owing_index, given.member) end
local ttl = (expires ~= '' or queue ~= '\n') and RUNNING_TTL or IDLE_TTL
if ttl or version and not in_lease and redis.call('PTTL', state) > 0 then
  for _, key in ipairs({state, messages, logs}) do
    if ttl then redis.call('PEXPIRE', key, ttl) else redis.call('PERSIST', key) end
  end
end
redis.call('PUBLISH', given.channel, '')
return {fields[2], now, queue ~= '\n' and 1 or 0}
