-- A post for the queue, and the log of the run that it will be.
-- KEYS state messages receipts runs queue log [due]
-- ARGV run post limit stops delay member channel ttl log_ttl last record (receipt value)*
local run, post, limit, stops, delay, member, channel = unpack(ARGV, 1, 7)
local ttl, log_ttl, last, record = unpack(ARGV, 8, 11)

local running, count = unpack(redis.call('HMGET', keys.state, 'running', 'count'))
local waiting = redis.call('LRANGE', keys.queue, 0, -1)
for _, entry in ipairs(waiting) do
  if is_of(entry, run) then return 'queued' end
end
if redis.call('EXISTS', keys.log) == 1 then return 'queued' end
if running ~= '1' and #waiting == 0 then return 'changed' end
for i = 12, #ARGV, 2 do
  if redis.call('HEXISTS', keys.receipts, ARGV[i]) == 1 then return 'changed' end
end
if #waiting >= tonumber(limit) then return 'full' end
check_parts(tonumber(count))
-- nothing above this line writes

local epoch = redis.call('HINCRBY', keys.state, 'drawn', 1)
if stops == '1' and running == '1' then redis.call('HSET', keys.state, 'cancelled', '1') end
redis.call('RPUSH', keys.queue, run .. '\0' .. post)
for i = 12, #ARGV, 2 do redis.call('HSET', keys.receipts, ARGV[i], ARGV[i + 1]) end
if record ~= '' then redis.call('XADD', keys.log, epoch .. '-' .. last, 'events', record) end
if keys.due then redis.call('ZADD', keys.due, 'NX', moment(delay), member) end
keep(ttl)
keep_log(run, log_ttl)
redis.call('PUBLISH', channel, '')
return 'queued'
