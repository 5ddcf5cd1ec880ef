-- Ask for a run to be cancelled, or take it out of the queue and end its log.
-- KEYS state messages receipts runs queue log [due]
-- ARGV run_id channel idle_ttl running_ttl log_ttl last record
-- Return 1, or 0 when the run neither goes on nor waits.
local run_id, channel, idle_ttl, running_ttl, log_ttl, last, record = unpack(ARGV, 1, 7)

local running, running_id = unpack(redis.call('HMGET', keys.state, 'running', 'run_id'))
if running == '1' and running_id == run_id then
  redis.call('HSET', keys.state, 'cancelled', '1')
  return 1
end
local found = false
for _, entry in ipairs(redis.call('LRANGE', keys.queue, 0, -1)) do
  if is_entry_of(entry, run_id) then found = entry end
end
if not found then
  -- a repeat: only this script makes entries with the field `dequeued`
  local newest = redis.call('XREVRANGE', keys.log, '+', '-', 'COUNT', 1)[1]
  return newest and newest[2][3] == 'dequeued' and 1 or 0
end
redis.call('ZCARD', keys.runs)
redis.call('XLEN', keys.log)
-- nothing above this line writes

local epoch = redis.call('HINCRBY', keys.state, 'newest_epoch', 1)
redis.call('LREM', keys.queue, 1, found)
redis.call('XADD', keys.log, epoch .. '-' .. last, 'events', record, 'dequeued', '1')
set_ttl((running == '1' or has_queue()) and running_ttl or idle_ttl)
set_log_ttl(run_id, log_ttl)
redis.call('PUBLISH', channel, '')
return 1
