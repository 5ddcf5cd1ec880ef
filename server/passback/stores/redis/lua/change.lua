-- park, begin and reap: a change of the transcript, which also takes a lease (begin) or ends one (reap).
-- KEYS state messages answers runs log
-- ARGV kind nonce expected first_version owed tools ttl channel run lease log_ttl last record n message*n (call answer)*
-- Gives the epoch, or false when the change does not fit.
local keys = {state = KEYS[1], messages = KEYS[2], answers = KEYS[3], runs = KEYS[4], log = KEYS[5]}
local kind, nonce, expected, first_version, owed, tools, ttl = unpack(ARGV, 1, 7)
local channel, run, lease, log_ttl, last, record, n = unpack(ARGV, 8, 14)

local version, seen, running, owner, expires, epoch, count = unpack(redis.call('HMGET', keys.state,
  'version', 'nonce', 'running', 'run', 'expires', 'epoch', 'count'))
epoch, count = tonumber(epoch or 0), tonumber(count or 0)
if seen == nonce then return epoch end
if tonumber(version or 0) ~= tonumber(expected) then return false end
if kind == 'reap' then
  if running ~= '1' or owner ~= run or tonumber(expires) > now then return false end
elseif running == '1' then
  return false
end
if version then check_parts(keys, count) end
-- nothing above this line writes

-- The state comes first: a server without memory refuses it, but would let pass all that follows another write.
if kind ~= 'park' then epoch = epoch + 1 end
redis.call('HSET', keys.state, 'version', digits((version or first_version - 1) + 1), 'nonce', nonce,
  'owed', owed, 'epoch', digits(epoch), 'count', digits(count + n))
if tools ~= '' then redis.call('HSET', keys.state, 'tools', tools) end
if not version then
  redis.call('DEL', keys.messages, keys.answers, keys.runs)  -- what an eviction may have left over
end
local messages_end = 14 + n
for i = 15, messages_end do redis.call('RPUSH', keys.messages, ARGV[i]) end
for i = messages_end + 1, #ARGV, 2 do redis.call('HSET', keys.answers, ARGV[i], ARGV[i + 1]) end
if kind ~= 'park' then
  redis.call('HSET', keys.state, 'run', run, 'running', kind == 'begin' and '1' or '0',
    'fence', epoch .. ':' .. nonce, 'expires', digits(now + lease), 'step', '-1', 'seq', last, 'cancelled', '0')
  if record ~= '' then redis.call('XADD', keys.log, epoch .. '-' .. last, 'events', record) end
  keep_log(keys, run, log_ttl)
end
keep(keys, ttl)
redis.call('PUBLISH', channel, '')
return epoch
