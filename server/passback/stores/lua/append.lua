-- Events for a run's log, and a renewed lease; without a record only the lease.
-- KEYS state log | ARGV fence lease channel log_ttl last record
local fence, lease, channel, log_ttl, last, record = unpack(ARGV)
local held, running, epoch, seq, cancelled = unpack(redis.call('HMGET', KEYS[1],
  'fence', 'running', 'epoch', 'seq', 'cancelled'))
if held ~= fence or running ~= '1' then return 'lost' end
-- nothing above this line writes

if record ~= '' and tonumber(last) > tonumber(seq) then
  redis.call('XADD', KEYS[2], epoch .. '-' .. last, 'events', record)
  redis.call('PEXPIRE', KEYS[2], log_ttl)
  redis.call('HSET', KEYS[1], 'seq', last)
  redis.call('PUBLISH', channel, '')
end
redis.call('HSET', KEYS[1], 'expires', digits(now + lease))
return cancelled == '1' and 'cancelled' or 'held'
