-- Ask for a run to be cancelled, or take it out of the queue and end its log.
-- KEYS state messages receipts runs queue log [due] | ARGV run channel idle busy log_ttl last record
local run, channel, idle, busy, log_ttl, last, record = unpack(ARGV, 1, 7)

local running, owner = unpack(redis.call('HMGET', keys.state, 'running', 'run'))
if running == '1' and owner == run then
  redis.call('HSET', keys.state, 'cancelled', '1')
  return 1
end
local found = false
for _, entry in ipairs(redis.call('LRANGE', keys.queue, 0, -1)) do
  if is_of(entry, run) then found = entry end
end
if not found then
  -- a repeat: only this script makes entries that say so
  local newest = redis.call('XREVRANGE', keys.log, '+', '-', 'COUNT', 1)[1]
  return newest and newest[2][3] == 'dequeued' and 1 or 0
end
redis.call('ZCARD', keys.runs)
redis.call('XLEN', keys.log)
-- nothing above this line writes

local epoch = redis.call('HINCRBY', keys.state, 'drawn', 1)
redis.call('LREM', keys.queue, 1, found)
redis.call('XADD', keys.log, epoch .. '-' .. last, 'events', record, 'dequeued', '1')
keep((running == '1' or posts_wait()) and busy or idle)
keep_log(run, log_ttl)
redis.call('PUBLISH', channel, '')
return 1
